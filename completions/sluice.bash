# SPDX-License-Identifier: Apache-2.0
# Completion of sluice(1) for bash. scripts/completions puts the commands' own tables in:
#   _sluice_commands WORDS          what may follow these words of a command
#   _sluice_options COMMAND         its options; those that take a value end in =
#   _sluice_values COMMAND OPTION   the values of an option: words, or FILE, or DIR
#   _sluice_operands COMMAND        FILE, DIR, COMMAND, or nothing
# @tables

_sluice_reply() {
	case $1 in
	FILE) mapfile -t COMPREPLY < <(compgen -f -- "$2") && compopt -o filenames 2>/dev/null ;;
	DIR) mapfile -t COMPREPLY < <(compgen -d -- "$2") && compopt -o filenames 2>/dev/null ;;
	COMMAND) mapfile -t COMPREPLY < <(compgen -c -- "$2") ;;
	*) mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2") ;;
	esac
}

_sluice() {
	# bash splits words at '=': "--name=value" is three of them.
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} option='' command='' words i
	for ((i = 1; i < COMP_CWORD; i++)); do
		words=$(_sluice_commands "$command")
		[[ " ${words//$'\n'/ } " == *" ${COMP_WORDS[i]} "* ]] && command+="${command:+ }${COMP_WORDS[i]}"
	done
	if [[ $cur == = ]]; then
		option=$prev cur=
	elif [[ $prev == = ]]; then
		option=${COMP_WORDS[COMP_CWORD - 2]}
	elif [[ $prev == --* && " $(_sluice_options "$command") " == *" $prev= "* ]]; then
		option=$prev
	fi
	words=$(_sluice_commands "$command")
	if [[ -n $option ]]; then
		words=$(_sluice_values "$command" "$option")
	elif [[ $cur == -* ]]; then
		words=$(_sluice_options "$command")
	elif [[ -z $words ]]; then
		words=$(_sluice_operands "$command")
	fi
	_sluice_reply "$words" "$cur"
	[[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
	return 0
}
complete -F _sluice sluice
