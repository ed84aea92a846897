#compdef sluice
# SPDX-License-Identifier: Apache-2.0
# Completion of sluice(1) for zsh. scripts/completions puts the commands' own tables in; both set reply:
#   _sluice_commands WORDS     what may follow these words of a command, as name:summary
#   _sluice_arguments COMMAND  its options and operands, as _arguments takes them
# @tables

_sluice() {
	local command= i last=1
	local -a reply
	for ((i = 2; i < CURRENT; i++)); do
		_sluice_commands "$command"
		if ((${reply[(I)${(b)words[i]}:*]})); then
			command+="${command:+ }${words[i]}" last=$i
		fi
	done
	_sluice_commands "$command"
	if (($#reply)) && [[ $words[CURRENT] != -* ]]; then
		_describe -t commands 'command' reply
		return
	fi
	# What is left without the words of the command are its options and operands.
	words=($words[1] $words[last+1,-1])
	((CURRENT -= last - 1))
	_sluice_arguments "$command"
	_arguments -S -s $reply
}

_sluice "$@"
