/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of names that are left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backup/create/exclude.h"

static bool glob(const char *pattern, const char *text)
{
	return sl__bk_glob(pattern, strlen(pattern), text);
}

static void patterns_match_as_in_a_shell(void **state)
{
	(void)state;
	static const struct {
		const char *pattern, *text;
		bool match;
	} cases[] = {
		{"a", "a", true},
		{"a", "b", false},
		{"a", "ab", false},
		{"", "", true},
		{"*", "", true},
		{"*", "abc", true},
		{"*", "a/b", false},
		{"*.o", "x.o", true},
		{"*.o", ".o", true},
		{"*.o", "x.ob", false},
		{"*.o*", "x.ob", true},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "aXbYbZ", false},
		{"?", "x", true},
		{"?", "/", false},
		{"?", "", false},
		{"a?c", "abc", true},
		{"[abc]x", "bx", true},
		{"[!abc]x", "bx", false},
		{"[^abc]x", "dx", true},
		{"[a-c]", "b", true},
		{"[a-c]", "d", false},
		{"[]]", "]", true},
		{"[!]]", "]", false},
		{"[a-]", "-", true},
		{"[", "[", true},
		{"[abc", "[abc", true},
		{"[!x]", "/", false},
		{"\\*", "*", true},
		{"\\*", "x", false},
		{"\\", "\\", true},
		{"[\xff]", "\xff", true},
		{"/a/*", "/a/b", true},
		{"/a/*", "/a/b/c", false},
		{"/a/**", "/a/b/c", true},
		{"/a/**", "/a", false},
		{"**/b", "a/b", true},
		{"**/b", "x/y/b", true},
		{"**/b", "b", true},
		{"**/b", "xb", false},
		{"/a/**/b", "/a/b", true},
		{"/a/**/b", "/a/x/y/b", true},
		{"/a/**/b", "/ab", false},
		{"a**b", "a/x/b", true},
		{"**", "any/thing", true},
		{"**/*.c", "a/b/c.c", true},
		{"**/*.c", "a/b/c.h", false},
		{"**/x/*/y", "a/x/b/x/c/y", true},
		{"*/x", "a/b/x", false},
	};
	for (size_t i = 0; i < SL_COUNT(cases); i++)
		if (glob(cases[i].pattern, cases[i].text) != cases[i].match)
			fail_msg("'%s' and '%s': %s", cases[i].pattern, cases[i].text,
				 cases[i].match ? "should match" : "should not match");
}

/* Word for word what the pattern means, and slow. */
static bool slow(const char *p, const char *t)
{
	if (*p == '\0')
		return *t == '\0';
	if (p[0] == '*' && p[1] == '*') {
		const char *rest = p;
		while (*rest == '*')
			rest++;
		for (const char *at = t;; at++) {
			if (slow(rest, at))
				return true;
			if (*at == '\0')
				return false;
		}
	}
	if (*p == '*') {
		for (const char *at = t;; at++) {
			if (slow(p + 1, at))
				return true;
			if (*at == '\0' || *at == '/')
				return false;
		}
	}
	if (*t == '\0')
		return false;
	return (*p == '?' ? *t != '/' : *p == *t) && slow(p + 1, t + 1);
}

static void it_agrees_with_the_definition_on_all_short_patterns(void **state)
{
	(void)state;
	static const char pattern_bytes[] = "ab*?", text_bytes[] = "ab/";
	long compared = 0;
	for (int i = 0; i < 4096; i++) {
		char pattern[7] = "";
		for (int d = 0, x = i; d < 6; d++, x /= 4)
			pattern[d] = pattern_bytes[x % 4];
		for (int j = 0; j < 243; j++) {
			char text[6] = "";
			for (int d = 0, x = j; d < 5; d++, x /= 3)
				text[d] = text_bytes[x % 3];
			for (int cut = 0; cut < 3; cut++) {
				if (glob(pattern + cut, text + cut) != slow(pattern + cut, text + cut))
					fail_msg("'%s' and '%s'", pattern + cut, text + cut);
				compared++;
			}
		}
	}
	print_message("# %ld comparisons\n", compared);
}

static void hostile_patterns_take_no_more_than_a_moment(void **state)
{
	(void)state;
	char text[20001], pattern[201];
	memset(text, 'a', 20000);
	text[20000] = '\0';
	for (int i = 0; i < 100; i++)
		memcpy(pattern + 2 * i, "a*", 2);
	pattern[200] = '\0';
	pattern[199] = 'b';
	assert_false(glob(pattern, text));
}

static void names_and_whole_paths_are_told_apart_by_a_slash(void **state)
{
	(void)state;
	static const char *const patterns[] = {"*.o", "sub/cache", "/abs/**/x", "./tmp/"};
	struct bk_excludes x;
	assert_int_equal(sl__bk_excludes_init(&x, patterns, 4, NULL), 0);
	assert_true(x.any_whole);
	assert_true(sl__bk_excluded(&x, "a.o", "sub/a.o", "/w/sub/a.o"));
	assert_true(sl__bk_excluded(&x, "cache", "./sub/cache", "/w/sub/cache"));
	assert_false(sl__bk_excluded(&x, "cache", "cache", "/w/cache"));
	assert_true(sl__bk_excluded(&x, "x", "x", "/abs/y/x"));
	assert_true(sl__bk_excluded(&x, "tmp", "./tmp", "/w/tmp"));
	assert_false(sl__bk_excluded(&x, "tmp", "a/tmp", "/w/a/tmp"));
	static const char *const names[] = {"only", "names/"};
	assert_int_equal(sl__bk_excludes_init(&x, names, 2, NULL), 0);
	assert_false(x.any_whole);
	assert_true(sl__bk_excluded(&x, "names", NULL, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns_match_as_in_a_shell),
		cmocka_unit_test(it_agrees_with_the_definition_on_all_short_patterns),
		cmocka_unit_test(hostile_patterns_take_no_more_than_a_moment),
		cmocka_unit_test(names_and_whole_paths_are_told_apart_by_a_slash),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
