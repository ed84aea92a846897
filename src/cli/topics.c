/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of `sluice help TOPIC`. */
#include "commands.h"

#include <stddef.h>
#include <string.h>

/* Every indented line that begins with sluice is run by a test, as it stands here. */
static const char first_steps[] = "Start everything on this machine: a server with its dashboard, which prints\n"
				  "its address, and a worker that serves one type of jobs with a command.\n"
				  "\n"
				  "  sluice up --type hello='echo hello'\n"
				  "\n"
				  "In another terminal, enqueue a job, and read its state and output.\n"
				  "\n"
				  "  sluice enqueue hello '{\"to\":\"ada\"}'\n"
				  "  sluice jobs list\n"
				  "  sluice jobs logs 1\n"
				  "\n"
				  "No server is needed for jobs: a worker alone does, here until nothing is left.\n"
				  "\n"
				  "  sluice worker --type hello='echo hello' --drain\n"
				  "\n"
				  "One command as a job, with its output kept and its exit status handed on:\n"
				  "\n"
				  "  sluice run -- make all\n"
				  "\n"
				  "Watch all of it survive kill -9 and a cut network:\n"
				  "\n"
				  "  sluice demo\n";

static const char handlers[] = "A handler is any executable. It gets the job's input on standard input, and\n"
			       "SLUICE_JOB_ID, SLUICE_CHAIN_ID, SLUICE_ATTEMPT and SLUICE_TYPE in its\n"
			       "environment. Every line that it writes is kept. On descriptor 3 it may say\n"
			       "more, a JSON object a line. Exit 0 completes the job, 75 tries again without\n"
			       "counting, anything else is a failed attempt, which is tried again later.\n"
			       "\n"
			       "  #!/bin/sh\n"
			       "  to=$(jq -r .to)\n"
			       "  echo \"sending to $to\"\n"
			       "  echo '{\"progress\":{\"percent\":50}}' >&3\n"
			       "  echo hello | mail -s hello \"$to\" || exit 75\n"
			       "  echo '{\"output\":{\"sent\":true}}' >&3\n"
			       "\n"
			       "Serve it four at a time, give up after five failures, end what hangs:\n"
			       "\n"
			       "  sluice worker --type mail=./send-mail --slots 4 --max-attempts 5 --timeout 2m\n"
			       "\n"
			       "A handler runs at least once: what it does elsewhere must be idempotent.\n"
			       "SLUICE_JOB_ID is the same for every attempt.\n";

static const char chains[] = "A chain is its first job and what follows from it; both have the same id. A\n"
			     "handler continues with another job by writing so to descriptor 3:\n"
			     "\n"
			     "  echo '{\"continue_with\":{\"type\":\"report\",\"input\":{\"day\":1}}}' >&3\n"
			     "\n"
			     "A job that waits for others, one that is not started twice, one for later:\n"
			     "\n"
			     "  sluice enqueue total --after 41,42\n"
			     "  sluice enqueue mail '{\"to\":\"ada\"}' --key welcome-ada\n"
			     "  sluice enqueue report --in 2h --priority 10\n"
			     "\n"
			     "Again and again, each tick once however many workers there are:\n"
			     "\n"
			     "  sluice cron add nightly '30 2 * * *' report '{\"kind\":\"full\"}'\n"
			     "\n"
			     "Wait for the end of a chain, and print its output:\n"
			     "\n"
			     "  sluice jobs wait 42 --timeout 5m\n";

static const char data[] = "A file into a table; what does not fit goes to the dead letters with its line:\n"
			   "\n"
			   "  sluice load bars.csv --to sqlite:market.db --table bars --create\n"
			   "\n"
			   "The lines of a log as they are written, through rotation and kill -9:\n"
			   "\n"
			   "  sluice ship --follow /var/log/app.log --to http://127.0.0.1:7070\n"
			   "\n"
			   "Numbered rows into Parquet files, with a catalog and an audit chain:\n"
			   "\n"
			   "  sluice export --from bars.csv --to ./lake --dataset bars\n"
			   "  sluice export status ./lake\n"
			   "\n"
			   "A durable log for a program of your own:\n"
			   "\n"
			   "  printf 'one\\ntwo\\n' | sluice wal append ./demo.wal\n"
			   "  sluice wal dump ./demo.wal\n";

static const char failures[] = "Nothing vanishes: what failed for good is listed, and can be retried.\n"
			       "\n"
			       "  sluice jobs list --status failed\n"
			       "  sluice jobs show 42\n"
			       "  sluice jobs retry 42\n"
			       "\n"
			       "Rows and records that a target refused are in the dead letters:\n"
			       "\n"
			       "  sluice dlq list ./sluice-dead-letters\n"
			       "  sluice dlq show ./sluice-dead-letters 1\n"
			       "  sluice dlq redrive ./sluice-dead-letters\n"
			       "\n"
			       "A log that may be damaged: check it first, then quarantine the damage.\n"
			       "\n"
			       "  sluice wal verify ./demo.wal\n"
			       "  sluice wal recover ./demo.wal\n"
			       "\n"
			       "An export with numbers missing:\n"
			       "\n"
			       "  sluice export gaps ./lake --dataset bars\n";

static const char proof[] =
	"An export holds a chain of events, each with the hash of the one before. Make\n"
	"a key once, sign the chain's head after an export, and keep the head and the\n"
	"public key on another machine:\n"
	"\n"
	"  sluice audit keygen ./audit.key\n"
	"  sluice audit head ./lake --dataset bars --key-file ./audit.key --out bars.head\n"
	"\n"
	"Later, prove that nothing was skipped, doubled, changed or cut off since:\n"
	"\n"
	"  sluice audit verify ./lake --dataset bars --checkpoint bars.head --public-key audit.key.pub\n"
	"\n"
	"Status 0 means proved; 65 names the first thing that is wrong, --all all.\n";

static const char backups[] = "Make a repository, on another disk. Its passphrase is read from the terminal\n"
			      "or a file of mode 0600. Without it the backups cannot be read again: keep it\n"
			      "elsewhere, too.\n"
			      "\n"
			      "  sluice backup init /mnt/disk/backups --passphrase-file ./pass\n"
			      "\n"
			      "Back up Sluice's own data, or any files; only what is new is written:\n"
			      "\n"
			      "  sluice backup create --repo /mnt/disk/backups --passphrase-file ./pass\n"
			      "  sluice backup create /etc /home --repo /mnt/disk/backups --exclude '*.tmp'\n"
			      "\n"
			      "Look, and bring a part of it back:\n"
			      "\n"
			      "  sluice backup list --repo /mnt/disk/backups\n"
			      "  sluice backup restore latest /etc/ssh --to ./restored --repo /mnt/disk/backups\n"
			      "\n"
			      "Prove that every snapshot can be restored; thin them out; free the space:\n"
			      "\n"
			      "  sluice backup check --read-data --repo /mnt/disk/backups\n"
			      "  sluice backup forget --keep-daily 7 --keep-monthly 12 --repo /mnt/disk/backups\n"
			      "  sluice backup prune --repo /mnt/disk/backups\n";

static const char production[] = "Several machines share one PostgreSQL. Name it once for all commands; a\n"
				 "password belongs into a file that PGPASSFILE names:\n"
				 "\n"
				 "  export SLUICE_STORE=postgres://db.example/jobs\n"
				 "\n"
				 "A server for the dashboard, the API and the logs of workers. Other addresses\n"
				 "than loopback need TLS and tokens, see sluice-server(1):\n"
				 "\n"
				 "  sluice config list > sluice.yaml\n"
				 "  sluice config check sluice.yaml\n"
				 "  sluice server --config sluice.yaml\n"
				 "\n"
				 "Workers, on any machine, each with as many slots as it can bear:\n"
				 "\n"
				 "  sluice worker --type mail=/usr/local/bin/send-mail --slots 16\n"
				 "\n"
				 "The Debian package has both as services, which it does not enable by itself:\n"
				 "\n"
				 "  systemctl enable --now sluice-server\n"
				 "  systemctl enable --now sluice-worker@default\n"
				 "\n"
				 "The first reads /etc/sluice/sluice.yaml, the second\n"
				 "/etc/sluice/workers/default.env. SIGTERM drains both: what runs may finish.\n"
				 "\n"
				 "Look after it:\n"
				 "\n"
				 "  sluice jobs stats\n"
				 "  sluice jobs prune --keep 90d\n";

static const char scripts[] =
	"Results go to standard output, everything else to standard error; the exit\n"
	"status says what became of it: 0 done, 64 wrong usage, 65 bad data, 69 and 75\n"
	"worth another try. 'sluice help exit-codes' lists them all.\n"
	"\n"
	"  id=$(sluice enqueue mail '{\"to\":\"ada\"}') && sluice jobs wait \"$id\" --timeout 5m\n"
	"\n"
	"Most commands print JSON on request, one object per line:\n"
	"\n"
	"  sluice jobs list --status failed --json | jq -r .id\n"
	"\n"
	"Many jobs at once, in one transaction:\n"
	"\n"
	"  sluice enqueue mail --bulk jobs.jsonl\n"
	"\n"
	"Errors as JSON records, and nothing but errors:\n"
	"\n"
	"  sluice --log-format json --quiet wal verify ./demo.wal\n"
	"\n"
	"Every command, option and exit status as one document:\n"
	"\n"
	"  sluice help --json\n";

const struct topic topics[] = {
	{"first-steps", "a server, a worker and a job in a minute", first_steps},
	{"handlers", "commands that do the work of jobs", handlers},
	{"chains", "jobs that follow, wait for and repeat each other", chains},
	{"data", "files, logs and tables from here to there", data},
	{"failures", "what failed, where it is, and how to retry it", failures},
	{"proof", "show that an export is whole and unchanged", proof},
	{"backups", "snapshots of data and files: make, restore, check, thin out", backups},
	{"production", "several machines, services, settings", production},
	{"scripts", "exit statuses, JSON and many jobs at once", scripts},
	{"exit-codes", "exit statuses, signals and global options", NULL},
	{NULL, NULL, NULL},
};

const struct topic *topic_find(const char *name)
{
	for (const struct topic *t = topics; t->name; t++) {
		if (strcmp(t->name, name) == 0)
			return t;
	}
	return NULL;
}
