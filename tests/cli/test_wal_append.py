# SPDX-License-Identifier: Apache-2.0
"""sluice wal append: what is printed is in the log, in order, whatever comes in and however it ends."""

import fcntl
import os
import pty
import resource
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import walfmt
from clitest import SLUICE, TIMEOUT, CliTest, main


def numbers(first, last):
    return "".join(f"{n}\n" for n in range(first, last + 1)).encode()


def frames(*payloads):
    return b"".join(struct.pack("<I", len(p)) + p for p in payloads)


class Lines(CliTest):
    def test_each_line_is_one_record_and_its_sequence_is_printed(self):
        r = self.ok("wal", "append", "x.wal", stdin=b"one\ntwo\nthree\n")
        self.assertEqual(r.out, b"1\n2\n3\n")
        self.assertEqual(self.records("x.wal"), {1: b"one", 2: b"two", 3: b"three"})

    def test_a_second_run_continues_the_numbering(self):
        self.ok("wal", "append", "x.wal", stdin=b"one\n")
        self.assertEqual(self.ok("wal", "append", "x.wal", stdin=b"two\n").out, b"2\n")
        self.assertEqual(self.records("x.wal"), {1: b"one", 2: b"two"})

    def test_empty_lines_carriage_returns_NULs_and_a_last_line_without_newline_count(self):
        self.assertEqual(self.ok("wal", "append", "x.wal", stdin=b"\na\r\n\0b\0\n\n\xff\xfe\nlast").out, numbers(1, 6))
        self.assertEqual(list(self.records("x.wal").values()), [b"", b"a\r", b"\0b\0", b"", b"\xff\xfe", b"last"])

    def test_no_input_makes_an_empty_log(self):
        self.assertEqual(self.ok("wal", "append", "x.wal").out, b"")
        self.assertEqual(self.ok("wal", "dump", "x.wal").out, b"")
        self.assertEqual(walfmt.parse(self.read("x.wal"))[2], [])

    def test_a_folder_is_made_and_files_are_private(self):
        self.ok("wal", "append", "new/x.wal", stdin=b"one\n")
        self.assertEqual(os.stat(self.path("new")).st_mode & 0o777, 0o700)
        self.assertEqual(os.stat(self.path("new/x.wal")).st_mode & 0o777, 0o600)

    def test_many_lines_keep_their_order_with_any_window(self):
        lines = [b"line %d" % n * (n % 7) for n in range(1, 3001)]
        for window in ["1", "3", "64", "4096"]:
            with self.subTest(window=window):
                name = f"w{window}.wal"
                n = 300 if window == "1" else 3000
                r = self.ok("wal", "append", "--window", window, name, stdin=b"\n".join(lines[:n]) + b"\n")
                self.assertEqual(r.out, numbers(1, n))
                self.assertEqual(list(self.records(name).values()), lines[:n])

    def test_a_regular_file_is_read_as_input(self):
        path = self.write("in", b"a\nb\n")
        with open(path, "rb") as f:
            self.assertEqual(self.ok("wal", "append", "x.wal", stdin=f).out, b"1\n2\n")

    def test_the_largest_line_is_taken_and_one_byte_more_is_refused_with_its_number(self):
        largest = b"x" * walfmt.MAX_PAYLOAD
        self.assertEqual(self.ok("wal", "append", "x.wal", stdin=b"a\n" + largest + b"\nb\n").out, b"1\n2\n3\n")
        self.assertEqual(self.records("x.wal"), {1: b"a", 2: largest, 3: b"b"})
        r = self.fails(65, "wal", "append", "y.wal", stdin=b"a\nb\n" + largest + b"x\nc\n", says=["line 3", "2 records"])
        self.assertEqual(r.out, b"1\n2\n")
        self.assertEqual(self.records("y.wal"), {1: b"a", 2: b"b"})

    def test_an_endless_line_is_refused_in_bounded_memory(self):
        with open("/dev/zero", "rb") as zero:
            p = subprocess.Popen([SLUICE, "wal", "append", "x.wal"], stdin=zero, stderr=subprocess.PIPE, cwd=self.dir)
            err = p.stderr.read()
            p.stderr.close()
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(p.returncode, 65, err)
        self.assertIn(b"line 1 ", err)
        self.assertLess(usage.ru_maxrss, 256 * 1024)
        self.assertEqual(self.records("x.wal"), {})

    def test_a_log_written_here_is_read_by_another_program(self):
        lines = [b"%d" % n * (n * 13 % 97) for n in range(400)]
        self.ok("wal", "append", "--segment-bytes=4KiB", "x.wal", stdin=b"\n".join(lines) + b"\n")
        self.assertGreater(len(self.segments("x.wal")), 2)
        records = self.read_by_format("x.wal")
        self.assertEqual([r.payload for r in records], lines)
        self.assertEqual([r.sequence for r in records], list(range(1, 401)))
        self.assertEqual({r.status for r in records}, {walfmt.DATA})

    def test_a_log_written_by_another_program_is_continued(self):
        self.write("x.wal", walfmt.log([b"theirs 1", b"theirs 2"]))
        self.assertEqual(self.ok("wal", "append", "x.wal", stdin=b"ours\n").out, b"3\n")
        version, incarnation, raw = walfmt.parse(self.read("x.wal"))
        self.assertEqual((version, incarnation), (1, 0))
        self.assertEqual([(r.sequence, r.payload) for r in raw if r.status == walfmt.DATA],
                         [(1, b"theirs 1"), (2, b"theirs 2"), (3, b"ours")])

    def test_a_torn_tail_is_trimmed_before_the_next_record(self):
        whole = walfmt.log([b"one", b"two"])
        self.write("x.wal", whole + walfmt.record(3, b"never acknowledged")[:-5])
        self.assertEqual(self.ok("wal", "append", "x.wal", stdin=b"three\n").out, b"3\n")
        self.assertEqual(self.records("x.wal"), {1: b"one", 2: b"two", 3: b"three"})


class Frames(CliTest):
    def test_frames_are_records(self):
        payloads = [b"a\nb", b"", b"\0" * 100, b"x" * 300000]
        self.assertEqual(self.ok("wal", "append", "--frames", "x.wal", stdin=frames(*payloads)).out, numbers(1, 4))
        self.assertEqual(list(self.records("x.wal").values()), payloads)

    def test_a_frame_that_is_cut_off_is_refused_with_its_offset(self):
        whole = frames(b"one", b"three")
        for cut in [1, 3, 4, 8]:
            with self.subTest(cut=cut):
                name = f"c{cut}.wal"
                r = self.fails(65, "wal", "append", "--frames", name, stdin=whole + frames(b"cut off")[:cut],
                               says=[f"offset {len(whole)} ", "cut off"])
                self.assertEqual(r.out, b"1\n2\n")
                self.assertEqual(self.records(name), {1: b"one", 2: b"three"})

    def test_a_frame_with_too_large_a_length_is_refused_without_reading_it(self):
        for length in [walfmt.MAX_PAYLOAD + 1, 0xFFFFFFFF]:
            with self.subTest(length=length):
                r = self.fails(65, "wal", "append", "--frames", "x.wal", stdin=frames(b"ok") + struct.pack("<I", length),
                               says=["offset 6 ", str(length)])
                self.assertEqual(len(r.lines()), 1)


class Live(CliTest):
    def answer(self, p):
        """The next line of p, which must come without more input."""
        ready, _, _ = select.select([p.stdout], [], [], TIMEOUT)
        self.assertTrue(ready, "no answer")
        return p.stdout.readline()

    def test_a_slow_producer_has_its_answer_before_the_next_line(self):
        p = self.start("wal", "append", "--window=64", "x.wal", bufsize=0)
        for n in range(1, 6):
            p.stdin.write(b"line %d\n" % n)
            self.assertEqual(self.answer(p), b"%d\n" % n)
        p.stdin.write(b"half ")
        p.stdin.write(b"a line\n")
        self.assertEqual(self.answer(p), b"6\n")
        p.stdin.close()
        self.assertEqual(p.wait(TIMEOUT), 0)
        self.assertEqual(self.records("x.wal")[6], b"half a line")

    def test_an_unfinished_line_is_reported_when_it_is_interrupted(self):
        for args, data, says in [([], b"half", "4 bytes without a newline not appended"),
                                 ([], b"h", "1 byte without a newline not appended"),
                                 (["--frames"], b"\x05\0\0\0abc", "7 bytes of an unfinished frame not appended")]:
            with self.subTest(says=says):
                name = f"x{len(says)}.wal"
                p = self.start("wal", "append", name, *args, bufsize=0)
                p.stdin.write(b"one\n" if not args else b"\x03\0\0\0one")
                self.assertEqual(self.answer(p), b"1\n")
                p.stdin.write(data)
                while True:  # until it was read: nothing is left in the pipe
                    left = fcntl.ioctl(p.stdin, termios.FIONREAD, bytes(4))
                    if left == bytes(4):
                        break
                p.send_signal(signal.SIGTERM)
                self.assertEqual(p.wait(TIMEOUT), 75)
                errors = p.stderr.read().decode()
                self.assertIn(f"interrupted; 1 record appended to {name}", errors)
                self.assertIn(says, errors)
                self.assertEqual(self.records(name), {1: b"one"})

    def feed_with_a_terminal(self, *args, until):
        """Append line after line with a terminal as stderr, until what it shows satisfies until(shown, lines)."""
        leader, follower = pty.openpty()
        self.addCleanup(os.close, leader)
        p = subprocess.Popen([SLUICE, "wal", "append", "x.wal", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=follower, cwd=self.dir, bufsize=0)
        os.close(follower)
        shown, lines = b"", 0
        while not until(shown, lines):
            p.stdin.write(b"line\n")
            self.answer(p)
            lines += 1
            while select.select([leader], [], [], 0)[0]:
                shown += os.read(leader, 4096)
        p.stdin.close()
        p.stdout.close()
        self.assertEqual(p.wait(TIMEOUT), 0)
        return shown, lines

    def test_progress_is_drawn_on_a_terminal_and_not_with_quiet(self):
        end = time.monotonic() + TIMEOUT
        started = time.monotonic()
        shown, lines = self.feed_with_a_terminal(until=lambda shown, _: b"B/s" in shown or time.monotonic() > end)
        took = time.monotonic() - started
        self.assertRegex(shown, rb"\r.*B/s")
        end = time.monotonic() + 2 * took
        shown, _ = self.feed_with_a_terminal("--quiet", until=lambda _, n: n >= lines and time.monotonic() > end)
        self.assertEqual(shown, b"")

    def test_another_process_cannot_append_and_may_wait_for_its_turn(self):
        p = self.start("wal", "append", "x.wal", bufsize=0)
        p.stdin.write(b"one\n")
        self.answer(p)
        for command in [["append", "x.wal"], ["recover", "x.wal"], ["archive", "x.wal", "--to", "a", "--include-pending"]]:
            with self.subTest(command=command):
                self.one_line(self.fails(75, "wal", *command, stdin=b"two\n", says="x.wal"))
        self.assertEqual(self.records("x.wal"), {1: b"one"})
        self.fails(75, "wal", "append", "--lock-wait=60ms", "x.wal", stdin=b"two\n", says="x.wal")
        waiting = self.start("wal", "append", "--lock-wait=1h", "x.wal", bufsize=0)
        waiting.stdin.write(b"two\n")
        waiting.stdin.close()
        p.stdin.close()
        self.assertEqual(p.wait(TIMEOUT), 0)
        self.assertEqual(waiting.stdout.read(), b"2\n")
        self.assertEqual(waiting.wait(TIMEOUT), 0)

    def test_the_lock_of_a_killed_process_does_not_stay(self):
        p = self.start("wal", "append", "x.wal", bufsize=0)
        p.stdin.write(b"one\n")
        self.answer(p)
        p.kill()
        p.wait(TIMEOUT)
        self.assertEqual(self.ok("wal", "append", "x.wal", stdin=b"two\n").out, b"2\n")
        self.assertEqual(self.records("x.wal"), {1: b"one", 2: b"two"})

    def stop_in_a_storm(self, number):
        """Signal a process that is fed without end; its exit code, the sequences that it printed, and stderr."""
        p = self.start("wal", "append", "x.wal")

        def feed():
            n = 0
            try:
                while True:
                    n += 1
                    p.stdin.write(b"line %d\n" % n)
            except (OSError, ValueError):
                pass

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            seen = [p.stdout.readline() for _ in range(200)]
            p.send_signal(number)
            seen += p.stdout.read().splitlines(keepends=True)
            p.wait(TIMEOUT)
        finally:
            p.kill()
            feeder.join()
        return p.returncode, seen, p.stderr.read().decode()

    def check_stopped(self, seen, exact):
        if seen and not seen[-1].endswith(b"\n"):
            seen.pop()
        last = len(seen)
        self.assertGreaterEqual(last, 200)
        self.assertEqual(b"".join(seen), numbers(1, last))
        records = self.records("x.wal")
        for n in range(1, last + 1):
            self.assertEqual(records.get(n), b"line %d" % n)
        if exact:
            self.assertEqual(len(records), last)
        self.assertEqual(self.ok("wal", "append", "x.wal", stdin=b"next\n").out, b"%d\n" % (len(records) + 1))

    def test_SIGINT_and_SIGTERM_in_a_storm_leave_exactly_what_was_printed(self):
        for number in [signal.SIGINT, signal.SIGTERM]:
            with self.subTest(number=number):
                code, seen, errors = self.stop_in_a_storm(number)
                self.assertEqual(code, 75, errors)
                self.assertIn("interrupted", errors)
                self.check_stopped(seen, exact=True)
                os.unlink(self.path("x.wal"))

    def test_SIGKILL_in_a_storm_loses_nothing_that_was_printed(self):
        code, seen, _ = self.stop_in_a_storm(signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL)
        self.check_stopped(seen, exact=False)

    def test_SIGINT_ends_a_process_that_waits_for_input(self):
        p = self.start("wal", "append", "x.wal", bufsize=0)
        p.stdin.write(b"one\nhalf")
        self.answer(p)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(TIMEOUT), 75)
        self.assertEqual(self.records("x.wal"), {1: b"one"})

    def test_a_broken_output_ends_the_command_and_the_log_is_sound(self):
        r, w = os.pipe()
        p = self.start("wal", "append", "x.wal", stdout=w)
        os.close(w)
        os.close(r)
        try:
            for n in range(1, 1000000):
                p.stdin.write(b"line %d\n" % n)
            self.fail("it never ended")
        except OSError:
            pass
        self.assertEqual(p.wait(TIMEOUT), 141)
        self.assertEqual(p.stderr.read(), b"")
        self.ok("wal", "verify", "x.wal")
        for n, payload in self.records("x.wal").items():
            self.assertEqual(payload, b"line %d" % n)


class Errors(CliTest):
    def test_a_failed_write_leaves_what_was_printed_and_names_the_first_line_that_is_missing(self):
        lines = [b"line %d " % n + b"x" * 1000 for n in range(1, 2001)]

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (300000, 300000))

        p = subprocess.Popen([SLUICE, "wal", "append", "x.wal"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, cwd=self.dir, preexec_fn=limit)
        out, err = p.communicate(b"\n".join(lines), timeout=TIMEOUT)
        self.assertEqual(p.returncode, 74, err)
        n = len(out.splitlines())
        self.assertEqual(out, numbers(1, n))
        self.assertGreater(n, 100)
        self.assertIn(b"%d records are in the log, line %d and what follows is not" % (n, n + 1), err)
        found = list(self.records("x.wal").values())
        self.assertEqual(found[:n], lines[:n])
        if len(found) > n:
            self.assertIn(b"but %d records that were in flight" % (len(found) - n), err)
        self.assertEqual(self.ok("wal", "append", "x.wal", stdin=b"again\n").out, b"%d\n" % (len(found) + 1))

    def test_the_name_must_be_that_of_a_log(self):
        for name, says in [("x", "x.wal"), ("dir/x.log", "dir/x.log.wal"), ("x.wal.zst", "archive"), ("x.wal.17", "x.wal"),
                           (".wal", ".wal"), ("dir/.wal", "must end in .wal")]:
            with self.subTest(name=name):
                self.one_line(self.fails(64, "wal", "append", name, stdin=b"x\n", says=says))
        for name in [".hidden.wal", "a b.wal", "a.wal.wal"]:
            with self.subTest(name=name):
                self.fails(64, "wal", "append", name, stdin=b"x\n")
        self.assertEqual(os.listdir(self.dir), [])

    def test_a_missing_parent_cannot_be_created_in(self):
        self.one_line(self.fails(73, "wal", "append", "no/such/x.wal", stdin=b"x\n", says=["no/such", "the folder no does not exist"]))
        self.assertEqual(os.listdir(self.dir), [])

    def test_a_file_in_place_of_the_folder_is_an_error(self):
        self.write("file", b"")
        self.one_line(self.fails(73, "wal", "append", "file/x.wal", stdin=b"x\n", says="file is not a folder"))

    def test_what_is_not_a_log_is_left_alone(self):
        os.mkdir(self.path("dir.wal"))
        self.one_line(self.fails(65, "wal", "append", "dir.wal", stdin=b"x\n", says="dir.wal"))
        for name, data in [("text.wal", b"this is not a log at all\n" * 10), ("short.wal", b"hello")]:
            with self.subTest(name=name):
                self.write(name, data)
                self.fails(65, "wal", "append", name, stdin=b"x\n", says=name)
                self.assertEqual(self.read(name), data)

    def test_a_line_that_is_too_long_when_sealed_is_refused_and_those_before_it_are_printed(self):
        self.write("key", bytes(range(32)))
        big = b"x" * (walfmt.MAX_PAYLOAD - 39)
        r = self.fails(65, "wal", "append", "--key-file=key", "x.wal", stdin=b"a\nb\n" + big + b"\nc\n", says=["line 3"])
        self.assertEqual(r.out, b"1\n2\n")
        self.assertEqual(self.records("x.wal", "--key-file=key"), {1: b"a", 2: b"b"})
        self.assertEqual(self.ok("wal", "append", "--key-file=key", "x.wal", stdin=big[1:]).out, b"3\n")

    def test_a_key_file_that_is_missing_or_too_short_is_a_configuration_error(self):
        self.fails(78, "wal", "append", "--key-file=none", "x.wal", stdin=b"x\n", says="none")
        self.write("short", b"abc")
        self.fails(78, "wal", "append", "--key-file=short", "x.wal", stdin=b"x\n", says="short")


if __name__ == "__main__":
    main()
