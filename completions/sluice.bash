# SPDX-License-Identifier: Apache-2.0
# Completion of sluice(1) for bash. A test compares the words here with `sluice help --json`.

_sluice_options() {
	echo --log-format= --log-level= --quiet --help --version
	case $1 in
	'wal append') echo --frames --window= --segment-bytes= --on-corruption= --key-file= --lock-wait= ;;
	'wal dump' | 'wal verify' | 'wal stat') echo --json --key-file= ;;
	'wal recover') echo --on-corruption= --new-incarnation --json --key-file= --lock-wait= ;;
	'wal archive') echo --to= --include-pending --level= --on-corruption= --key-file= --lock-wait= ;;
	'wal cleanup') echo --retention-days= --dry-run --json ;;
	'dlq list' | 'dlq export') echo --all --json --key-file= ;;
	'dlq show') echo --json --raw --key-file= ;;
	'dlq redrive') echo --to-wal= --key-file= --lock-wait= --json ;;
	'dlq purge') echo --before= --yes --json ;;
	help*) echo --json ;;
	esac
}

_sluice_commands() {
	case $1 in
	'') echo wal dlq help ;;
	wal | 'help wal') echo append dump verify recover archive cleanup stat ;;
	dlq | 'help dlq') echo list show redrive purge export ;;
	help) echo wal dlq help ;;
	esac
}

_sluice_values() {
	case $1 in
	--log-format) echo logfmt json ;;
	--log-level) echo debug info warn error ;;
	--on-corruption) echo salvage truncate refuse ;;
	esac
}

_sluice() {
	# bash splits words at '=': "--name=value" is three of them.
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} option='' command='' words i
	if [[ $cur == = ]]; then
		option=$prev cur=
	elif [[ $prev == = ]]; then
		option=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	for ((i = 1; i < COMP_CWORD; i++)); do
		words=$(_sluice_commands "$command")
		[[ " ${words//$'\n'/ } " == *" ${COMP_WORDS[i]} "* ]] && command+="${command:+ }${COMP_WORDS[i]}"
	done
	words=$(_sluice_commands "$command")
	if [[ -n $option ]]; then
		words=$(_sluice_values "$option")
	elif [[ $cur == -* ]]; then
		words=$(_sluice_options "$command")
	fi
	if [[ -n $words ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	else
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
	[[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
	return 0
}
complete -F _sluice sluice
