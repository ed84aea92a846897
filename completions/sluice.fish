# SPDX-License-Identifier: Apache-2.0
# Completion of sluice(1) for fish. scripts/completions puts the commands' own tables in, each on its own line, with its
# description after a tab:
#   __sluice_commands WORDS          what may follow these words of a command
#   __sluice_options COMMAND         its options; those that take a value end in =
#   __sluice_values COMMAND OPTION   the values of an option: words, or FILE, or DIR
#   __sluice_operands COMMAND        FILE, DIR, COMMAND, or nothing
# @tables

# Candidates for a value, each with a prefix before it: KINDS… PREFIX TEXT
function __sluice_offer
    set -l prefix $argv[-2]
    set -l text $argv[-1]
    switch "$argv[1]"
        case FILE DIR
            for path in (__fish_complete_path $text)
                echo $prefix$path
            end
        case COMMAND
            __fish_complete_command
        case '*'
            for word in $argv[1..-3]
                echo $prefix$word
            end
    end
end

function __sluice_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l command ''
    for word in $words[2..-1]
        if contains -- $word (__sluice_commands "$command" | string replace -r '\t.*' '')
            set command (string trim -- "$command $word")
        end
    end
    set -l options (__sluice_options "$command" | string replace -r '\t.*' '')
    if string match -qr -- '^--[a-z-]+=' $current
        set -l option (string replace -r -- '=.*' '' $current)
        __sluice_offer (__sluice_values "$command" $option) $option= (string replace -r -- '^[^=]*=' '' $current)
    else if contains -- "$words[-1]=" $options
        __sluice_offer (__sluice_values "$command" $words[-1]) '' "$current"
    else if string match -q -- '-*' $current
        __sluice_options "$command"
    else
        set -l next (__sluice_commands "$command")
        if test -n "$next"
            string join -- \n $next
        else
            __sluice_offer (__sluice_operands "$command") '' "$current"
        end
    end
end

complete -c sluice -f -a '(__sluice_complete)'
