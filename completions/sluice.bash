# SPDX-License-Identifier: Apache-2.0
# Completion of sluice(1) for bash. A test compares the words here with `sluice help --json`.

_sluice_options() {
	echo --log-format= --log-level= --quiet --help --version
	case $1 in
	up)
		echo --config= --set= --store= --data= --listen= --host= --tls-cert= --tls-key= --tokens= --read-only \
			--access-log= --audit= --export= --type= --shell --slots=
		;;
	server)
		echo --config= --set= --store= --data= --listen= --host= --tls-cert= --tls-key= --tokens= --read-only \
			--access-log= --audit= --export=
		;;
	demo) echo --keep --listen= --data= --chains= --patience= --json ;;
	'config list') echo --json ;;
	run) echo --store= --detach --wal= --server= --token-file= --ca-file= --flush-timeout= ;;
	enqueue) echo --store= --key= --key-scope= --key-window= --at= --in= --priority= --after= --bulk= --json ;;
	worker)
		echo --store= --type= --shell --slots= --lease= --timeout= --max-attempts= --retry-delay= \
			--retry-max-delay= --poll= --drain --id= --wal= --server= --token-file= --ca-file= --kill-grace= --stop-grace= --flush-timeout= --json
		;;
	'jobs list')
		echo --store= --type= --status= --chain= --waiting-for= --key= --since= --until= --chains \
			--oldest-first --limit= --cursor= --json
		;;
	'jobs show' | 'jobs stats' | 'jobs retry' | 'jobs cancel' | 'jobs trigger' | 'jobs migrate' | \
		'cron list')
		echo --store= --json
		;;
	'jobs logs') echo --store= --follow --all --json ;;
	'jobs wait') echo --store= --timeout= --json ;;
	'jobs watch') echo --store= --every= --count= ;;
	'jobs fail') echo --store= --error= --json ;;
	'jobs delete') echo --store= --cascade --json ;;
	'jobs pause' | 'jobs resume' | 'cron remove') echo --store= ;;
	'jobs prune') echo --store= --keep= --json ;;
	'cron add') echo --store= --priority= --catch-up ;;
	load)
		echo --to= --table= --format= --on-conflict= --create --workers= --batch-size= --flush-interval= --overflow= \
			--wal= --rate= --dead-letters= --columns= --no-header --null= --max-record= --body= --header-file= \
			--token-file= --timeout= --zstd= --rotate-bytes= --json
		;;
	ship)
		echo --follow --to= --stream= --wal= --input= --table= --create --columns= --on-conflict= --body= --token-file= \
			--ca-file= --max-pending= --flush-timeout= --retarget --key-file= --json
		;;
	export)
		echo --from= --to= --dataset= --table= --query= --format= --no-header --sequence= --partition-size= --schema= --catalog= \
			--workers= --zstd-level= --bad-rows= --dead-letters= --config= --follow --final --audit-url= --audit-token-file= --audit-ca-file= --json
		;;
	'export status') echo --dataset= --catalog= --partitions --json ;;
	'export gaps') echo --dataset= --catalog= --json ;;
	'export backfill')
		echo --from= --to= --dataset= --table= --query= --format= --no-header --sequence= --partition-size= --schema= --catalog= \
			--workers= --zstd-level= --bad-rows= --dead-letters= --config= --ranges= --json
		;;
	'audit verify') echo --dataset= --checkpoint= --public-key= --catalog= --no-catalog --all --threads= --json ;;
	'audit show') echo --dataset= --after= --limit= --json ;;
	'audit head') echo --dataset= --key-file= --out= --json ;;
	'audit keygen') echo --json ;;
	'wal append') echo --frames --window= --segment-bytes= --on-corruption= --key-file= --lock-wait= ;;
	'wal dump' | 'wal verify' | 'wal stat') echo --json --key-file= ;;
	'wal recover') echo --on-corruption= --new-incarnation --json --key-file= --lock-wait= ;;
	'wal archive') echo --to= --include-pending --level= --on-corruption= --key-file= --lock-wait= ;;
	'wal cleanup') echo --retention-days= --dry-run --json ;;
	'parquet cat') echo --columns= --limit= --skip= ;;
	'parquet schema') echo --json ;;
	'parquet stat') echo --json --check ;;
	'dlq list' | 'dlq export') echo --all --json --key-file= ;;
	'dlq show') echo --json --raw --key-file= ;;
	'dlq redrive') echo --to-wal= --to= --key-file= --lock-wait= --json ;;
	'dlq purge') echo --before= --yes --json ;;
	help*) echo --json ;;
	esac
}

_sluice_commands() {
	case $1 in
	'' | help) echo up demo server config run enqueue worker jobs cron load ship export audit wal parquet dlq help ;;
	jobs | 'help jobs') echo list show logs wait watch stats retry cancel fail trigger delete pause resume prune migrate ;;
	cron | 'help cron') echo add list remove ;;
	audit | 'help audit') echo verify show head keygen ;;
	config | 'help config') echo check list ;;
	export | 'help export') echo status gaps backfill ;;
	wal | 'help wal') echo append dump verify recover archive cleanup stat ;;
	parquet | 'help parquet') echo cat schema stat ;;
	dlq | 'help dlq') echo list show redrive purge export ;;
	esac
}

_sluice_values() {
	case $1 in
	--log-format) echo logfmt json ;;
	--access-log) echo off logfmt json ;;
	--log-level) echo debug info warn error ;;
	--key-scope) echo incomplete any ;;
	--on-corruption) echo salvage truncate refuse ;;
	--format) echo csv jsonl ;;
	--bad-rows) echo stop divert ;;
	--input) echo lines jsonl ;;
	--overflow) echo block drop_oldest error ;;
	--body) echo jsonl array cloudevents ;;
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
