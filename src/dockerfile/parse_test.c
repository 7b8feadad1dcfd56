#include "dockerfile/parse.h"
#include "base/base.h"
#include "base/test.h"
#include "dockerfile/heredoc.h"

static struct err e;

static struct dockerfile *parse(const char *text)
{
	struct dockerfile *d = NULL;

	memset(&e, 0, sizeof(e));
	return dockerfile_parse(text, strlen(text), &d, &e) < 0 ? NULL : d;
}

#define PARSE(text)                                                                                                    \
	AUTO(dockerfile_free) struct dockerfile *d = parse(text);                                                      \
	if (!d)                                                                                                        \
		TEST_FAIL("%s", e.msg);

TEST(lines_continue_and_comments_inside_are_left_out)
{
	PARSE("# a comment\n\n  from x\nRUN a \\\n# not this\n\n   b \\  \nc\nRUN d \\\\\nUSER u");
	CHECK_EQ(d->n, 4);
	CHECK_EQ(d->at[0].kind, DOCKER_FROM);
	CHECK_EQ(d->at[0].line, 3);
	CHECK_STR(d->at[1].args.at[0], "a    b c");
	CHECK_EQ(d->at[1].line, 4);
	CHECK_EQ(d->at[1].last_line, 8);
	CHECK_STR(d->at[2].args.at[0], "d \\\\");
	CHECK_EQ(d->at[3].line, 10);
}

TEST(a_continuation_may_end_the_file)
{
	PARSE("FROM x\nRUN a \\");
	CHECK_EQ(d->n, 2);
	CHECK_STR(d->at[1].args.at[0], "a");
}

TEST(directives_set_the_escape_character)
{
	PARSE("# syntax=docker/dockerfile:1\n#ESCAPE = `\nFROM x\nRUN a `\n b\\\n");
	CHECK_EQ(d->escape, '`');
	CHECK_STR(d->at[1].args.at[0], "a  b\\");
}

TEST(a_directive_behind_a_comment_is_a_comment)
{
	PARSE("# hello\n# escape=`\nFROM x");
	CHECK_EQ(d->escape, '\\');
}

TEST(bad_directives_are_errors)
{
	CHECK(!parse("# escape=x\nFROM x"));
	CHECK_CONTAINS(e.msg, "line 1: the escape character");
	CHECK(!parse("# escape=`\n# Escape=`\nFROM x"));
	CHECK_CONTAINS(e.msg, "line 2: directive 'escape'");
}

TEST(json_forms_are_recognized)
{
	PARSE("FROM x\nRUN [\"a b\", \"c\\\"\"]\nCMD ['a']\nCMD [\nCOPY [\"a b\", \"c\"]\nCMD []");
	CHECK(d->at[1].json);
	CHECK_EQ(d->at[1].args.n, 2);
	CHECK_STR(d->at[1].args.at[1], "c\"");
	CHECK(!d->at[2].json);
	CHECK_STR(d->at[2].args.at[0], "['a']");
	CHECK(!d->at[3].json);
	CHECK_STR(d->at[4].args.at[0], "a b");
	CHECK(d->at[5].json);
	CHECK_EQ(d->at[5].args.n, 0);
	CHECK(!parse("FROM x\nCMD [ \"a\", [\"b\"] ]"));
	CHECK_CONTAINS(e.msg, "line 2: a JSON array");
	CHECK(!parse("FROM x\nCMD [\"a\\u0000\"]"));
	CHECK_CONTAINS(e.msg, "line 2: an argument contains a NUL");
}

TEST(pairs_keep_their_quotes)
{
	PARSE("FROM x\nENV a=b c=\"d e\" f=g\\ h i='j k'\nENV a  b = c\nLABEL a=");
	CHECK_EQ(d->at[1].args.n, 8);
	CHECK_STR(d->at[1].args.at[3], "\"d e\"");
	CHECK_STR(d->at[1].args.at[5], "g\\ h");
	CHECK_STR(d->at[1].args.at[7], "'j k'");
	CHECK(!d->at[1].bare);
	CHECK(d->at[2].bare);
	CHECK_STR(d->at[2].args.at[0], "a");
	CHECK_STR(d->at[2].args.at[1], "b = c");
	CHECK_STR(d->at[3].args.at[1], "");
	CHECK(!parse("FROM x\n\nENV a"));
	CHECK_CONTAINS(e.msg, "line 3: ENV needs a name and a value");
	CHECK(!parse("FROM x\nENV a=b c"));
	CHECK_CONTAINS(e.msg, "line 2: ENV: 'c'");
}

TEST(flags_come_before_arguments)
{
	PARSE("FROM x\nCOPY --from=a --chown=\"b c\" -- --d e\nRUN --mount=type=cache,target=/x ls --all\nCMD --x y");
	CHECK_EQ(d->at[1].flags.n, 2);
	CHECK_STR(d->at[1].flags.at[1], "--chown=b c");
	CHECK_STR(d->at[1].args.at[0], "--d");
	CHECK_EQ(d->at[2].flags.n, 1);
	CHECK_STR(d->at[2].args.at[0], "ls --all");
	CHECK_STR(d->at[3].flags.at[0], "--x");
}

TEST(here_documents_belong_to_their_instruction)
{
	PARSE("FROM x\nRUN cat <<A 3<<-'B' && echo \"<<C\"\na $x\nA\n\tb\n\tB\nCOPY <<\"x y\" /f\nx y\nUSER u\n");
	CHECK_EQ(d->n, 4);
	CHECK_EQ(d->at[1].heredocs, 2);
	CHECK_STR(d->at[1].heredoc[0].content, "a $x\n");
	CHECK(d->at[1].heredoc[0].expand);
	CHECK_STR(d->at[1].heredoc[1].content, "\tb\n");
	CHECK(!d->at[1].heredoc[1].expand);
	CHECK(d->at[1].heredoc[1].chomp);
	heredoc_chomp(d->at[1].heredoc[1].content);
	CHECK_STR(d->at[1].heredoc[1].content, "b\n");
	CHECK_EQ(d->at[1].last_line, 6);
	CHECK_EQ(d->at[3].line, 9);
}

TEST(what_only_looks_like_a_here_document_is_none)
{
	PARSE("FROM x\nRUN cat <<<x\nRUN echo $((1<<2))\nRUN [\"a\", \"<<b\"]\nRUN echo \"it's <<x\nENV a=<<x");
	for (size_t i = 0; i < d->n; i++)
		CHECK_EQ(d->at[i].heredocs, 0);
}

TEST(a_here_document_without_an_end_names_its_line)
{
	CHECK(!parse("FROM x\n\nRUN <<EOF\na\n EOF\n"));
	CHECK_CONTAINS(e.msg, "line 3: here-document 'EOF'");
}

TEST(unknown_instructions_name_their_line_and_the_nearest)
{
	CHECK(!parse("FROM x\n\nCOPPY a b\n"));
	CHECK_CONTAINS(e.msg, "line 3: unknown instruction 'COPPY'");
	CHECK_CONTAINS(e.remedy, "COPY");
}

TEST(empty_files_and_other_files_are_refused)
{
	static const char nul[] = "FROM x\nRUN \0";
	struct dockerfile *d = NULL;

	CHECK(!parse(""));
	CHECK(!parse("# only\n\n#comments\n"));
	CHECK_CONTAINS(e.msg, "no instructions");
	CHECK_EQ(dockerfile_parse(nul, sizeof(nul), &d, &e), -EINVAL);
	CHECK_CONTAINS(e.msg, "line 2: a NUL byte");
	CHECK(!parse("\\\n"));
}

TEST(windows_line_ends_and_byte_order_marks_are_fine)
{
	PARSE("\xef\xbb\xbf"
	      "FROM x\r\nRUN a \\\r\n b\r\n");
	CHECK_STR(d->at[1].args.at[0], "a  b");
}
