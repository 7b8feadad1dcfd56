/* `cloche completion`: scripts for shells. */
#include "client/client.h"
#include "base/base.h"
#include "client/show.h"

#define NAMES_MS 1000 /* a completion that takes longer is useless */

static const char help[] = "usage: cloche completion bash|zsh|fish\n"
			   "\n"
			   "Prints a script that completes commands, options and names:\n"
			   "\n"
			   "  bash   source <(cloche completion bash)       in ~/.bashrc\n"
			   "  zsh    source <(cloche completion zsh)        in ~/.zshrc, after compinit\n"
			   "  fish   cloche completion fish > ~/.config/fish/completions/cloche.fish\n"
			   "\n";

/* The commands of the other programs; a test compares them with what those say themselves. */
static const struct elsewhere {
	const char *name, *text, *options;
} elsewhere[] = {
	{ "run", "run a command in a new sandbox",
	  "--isolation --image --cpus --memory --disk --inodes --storage --pids --nofile --timeout --cpu-time "
	  "--output-limit "
	  "--io-bps --read-only --tmpfs --network --allow --allow-private --resolver --host --env --mount --workdir "
	  "--user --hostname --seccomp --gpu --device --cdi-dir --json --tty "
	  "--no-tty --interactive --rm "
	  "--language --help" },
	{ "doctor", "check what this host can enforce", "--attack --no-bombs --json --help" },
	{ "serve", "run the daemon",
	  "--data --layers --recover --listen --token-file --config --user --images --allow-device --allow-mount --pool --tls-cert "
	  "--tls-key "
	  "--stop-sandboxes "
	  "--recover --check --debug --version --help" },
	{ "quarantine", "list and remove what a daemon put into quarantine",
	  "ls show rm --data --layers --config --help" },
};

static void put_options(const struct command *c)
{
	const struct option *const tables[] = { c->options, c->more, args_common() };

	for (size_t i = 0; i < ARRAY_LEN(tables); i++)
		for (const struct option *o = tables[i]; o && o->name; o++)
			printf("--%s ", o->name);
}

static void put_names(void)
{
	for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++)
		printf("%s ", elsewhere[i].name);
	for (size_t i = 0; commands[i]; i++)
		printf("%s ", commands[i]->name);
}

static const char *what(const struct command *c)
{
	switch (c->complete) {
	case COMPLETE_NAMES:
		return "names";
	case COMPLETE_COPY:
		return "copy";
	case COMPLETE_FILES:
		return "files";
	case COMPLETE_WORDS:
		return "words";
	case COMPLETE_NOTHING:
		break;
	}
	return "nothing";
}

static const char *verb_name(const struct command *noun, const struct command *verb)
{
	return verb->name + strlen(noun->name) + 1;
}

/* The words that fit: those of the command, or its verbs. */
static void put_words(const struct command *c)
{
	if (c->words)
		fputs(c->words, stdout);
	for (size_t i = 0; c->verbs && c->verbs[i]; i++)
		printf("%s%s", i ? " " : "", verb_name(c, c->verbs[i]));
}

static void put_case(const char *pattern, const struct command *c)
{
	printf("\t%s) options='", pattern);
	put_options(c);
	printf("' what=%s given='", what(c));
	put_words(c);
	printf("' kinds='%s' ;;\n", c->names ? c->names : "");
}

/* case branches that set the variables "options", "what", "given" and "kinds": bash and zsh read them alike. */
static void put_cases(void)
{
	for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++)
		printf("\t%s) options='%s' what=files ;;\n", elsewhere[i].name, elsewhere[i].options);
	for (size_t i = 0; commands[i]; i++) {
		put_case(commands[i]->name, commands[i]);
		for (size_t k = 0; commands[i]->verbs && commands[i]->verbs[k]; k++) {
			AUTO(buf_done) struct buf quoted = BUF_INIT(256);

			buf_addf(&quoted, "'%s'", commands[i]->verbs[k]->name);
			put_case(buf_str(&quoted), commands[i]->verbs[k]);
		}
	}
}

/* Nouns, as a pattern: behind them the second word decides, too. */
static void put_nouns(void)
{
	bool first = true;

	for (size_t i = 0; commands[i]; i++)
		if (commands[i]->verbs) {
			printf("%s%s", first ? "" : "|", commands[i]->name);
			first = false;
		}
}

static void bash(void)
{
	puts("# bash completion for cloche: source <(cloche completion bash)\n"
	     "_cloche_names() { cloche completion names \"$@\" 2>/dev/null </dev/null; }\n"
	     "_cloche() {\n"
	     "\tlocal cur=${COMP_WORDS[COMP_CWORD]} key=${COMP_WORDS[1]} options= what= given= kinds= i\n"
	     "\tCOMPREPLY=()\n"
	     "\tif ((COMP_CWORD == 1)); then");
	fputs("\t\tmapfile -t COMPREPLY < <(compgen -W '", stdout);
	put_names();
	puts("--help --version' -- \"$cur\")\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\tfor ((i = 2; i < COMP_CWORD; i++)); do\n"
	     "\t\t[[ ${COMP_WORDS[i]} == -- ]] && return 0\n"
	     "\tdone");
	fputs("\tif ((COMP_CWORD > 2)); then case $key in ", stdout);
	put_nouns();
	puts(") key+=\" ${COMP_WORDS[2]}\" ;; esac; fi\n"
	     "\tcase $key in");
	put_cases();
	puts("\t*) return ;;\n"
	     "\tesac\n"
	     "\tcase ${COMP_WORDS[COMP_CWORD - 1]} in\n"
	     "\t--template) what=names kinds=template given= ;;\n"
	     "\t--checkpoint) what=names kinds=checkpoint given= ;;\n"
	     "\t--sandbox) what=names kinds=sandbox given= ;;\n"
	     "\tesac\n"
	     "\tif [[ $cur == -* ]]; then\n"
	     "\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\tcase $what in\n"
	     "\tnames) mapfile -t COMPREPLY < <(compgen -W \"$given $(_cloche_names $kinds)\" -- \"$cur\") ;;\n"
	     "\tfiles) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
	     "\tcopy)\n"
	     "\t\tmapfile -t COMPREPLY < <(compgen -S : -W \"$(_cloche_names sandbox)\" -- \"$cur\"; compgen -f -- "
	     "\"$cur\")\n"
	     "\t\tcompopt -o nospace 2>/dev/null\n"
	     "\t\t;;\n"
	     "\t*) mapfile -t COMPREPLY < <(compgen -W \"$given\" -- \"$cur\") ;;\n"
	     "\tesac\n"
	     "}\n"
	     "complete -F _cloche cloche");
}

static void zsh(void)
{
	puts("#compdef cloche\n"
	     "# zsh completion for cloche: source <(cloche completion zsh)\n"
	     "_cloche_names() { cloche completion names \"$@\" 2>/dev/null </dev/null; }\n"
	     "_cloche() {\n"
	     "\tlocal options= what= given= kinds= key=$words[2]\n"
	     "\tlocal -a names\n"
	     "\tif ((CURRENT == 2)); then\n"
	     "\t\tnames=(");
	for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++)
		printf("\t\t\t'%s:%s'\n", elsewhere[i].name, elsewhere[i].text);
	for (size_t i = 0; commands[i]; i++)
		printf("\t\t\t'%s:%s'\n", commands[i]->name, commands[i]->text);
	puts("\t\t)\n"
	     "\t\t_describe command names\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\t((${words[(I)--]} && ${words[(I)--]} < CURRENT)) && { _normal; return }");
	fputs("\tif ((CURRENT > 3)); then case $key in ", stdout);
	put_nouns();
	puts(") key+=\" $words[3]\" ;; esac; fi\n"
	     "\tcase $key in");
	put_cases();
	puts("\tesac\n"
	     "\tcase $words[CURRENT-1] in\n"
	     "\t--template) what=names kinds=template given= ;;\n"
	     "\t--checkpoint) what=names kinds=checkpoint given= ;;\n"
	     "\t--sandbox) what=names kinds=sandbox given= ;;\n"
	     "\tesac\n"
	     "\tif [[ $PREFIX == -* ]]; then\n"
	     "\t\tcompadd -- ${=options}\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\tcase $what in\n"
	     "\tnames) compadd -- ${=given} ${(f)\"$(_cloche_names ${=kinds})\"} ;;\n"
	     "\tfiles) _files ;;\n"
	     "\tcopy) compadd -S : -- ${(f)\"$(_cloche_names sandbox)\"}; _files ;;\n"
	     "\t*) compadd -- ${=given} ;;\n"
	     "\tesac\n"
	     "}\n"
	     "compdef _cloche cloche");
}

static void fish_rule(const char *command, const char *what_follows)
{
	printf("complete -c cloche -n '__cloche_at %s' %s\n", command, what_follows);
}

static void fish_options(const struct command *c)
{
	const struct option *const tables[] = { c->options, c->more, args_common() };

	for (size_t i = 0; i < ARRAY_LEN(tables); i++)
		for (const struct option *o = tables[i]; o && o->name; o++) {
			const char *n = o->name;
			bool known = o->has_arg == required_argument &&
				     (!strcmp(n, "template") || !strcmp(n, "checkpoint") || !strcmp(n, "sandbox"));

			printf("complete -c cloche -n '__cloche_at %s' -l %s", c->name, n);
			if (known)
				printf(" -x -a '(__cloche_names %s)'", n);
			puts("");
		}
}

static void fish_command(const struct command *c)
{
	AUTO(buf_done) struct buf b = BUF_INIT(1 * KIB);

	fish_options(c);
	if (c->names) {
		buf_addf(&b, "-a '(__cloche_names %s)'", c->names);
		fish_rule(c->name, buf_str(&b));
	}
	if (c->complete == COMPLETE_COPY)
		fish_rule(c->name, "-F -a '(__cloche_names sandbox):'");
	if (c->complete == COMPLETE_FILES)
		fish_rule(c->name, "-F");
	for (size_t i = 0; c->verbs && c->verbs[i]; i++)
		printf("complete -c cloche -n '__cloche_at %s' -a %s -d '%s'\n", c->name, verb_name(c, c->verbs[i]),
		       c->verbs[i]->text);
	for (size_t i = 0; c->verbs && c->verbs[i]; i++)
		fish_command(c->verbs[i]);
	if (c->complete == COMPLETE_WORDS)
		printf("complete -c cloche -n '__cloche_at %s' -a '%s'\n", c->name, c->words);
}

static void fish(void)
{
	fputs("# fish completion for cloche\n"
	      "function __cloche_names; cloche completion names $argv 2>/dev/null </dev/null; end\n"
	      "# Whether the line is about this command, or this verb of this noun.\n"
	      "function __cloche_at\n"
	      "\tset -l w (commandline -opc)\n"
	      "\ttest (count $w) -ge 2 -a \"$w[2]\" = \"$argv[1]\"; or return 1\n"
	      "\tset -l verb ''\n"
	      "\tif contains -- \"$w[2]\" ",
	      stdout);
	for (size_t i = 0; commands[i]; i++)
		if (commands[i]->verbs)
			printf("%s ", commands[i]->name);
	puts("; and test (count $w) -ge 3; set verb $w[3]; end\n"
	     "\ttest \"$verb\" = \"$argv[2]\"\n"
	     "end\n"
	     "complete -c cloche -f");
	for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++) {
		AUTO_FREE char *copy = strdup(elsewhere[i].options);
		char *at = copy, *word;

		printf("complete -c cloche -n __fish_use_subcommand -a %s -d '%s'\n", elsewhere[i].name,
		       elsewhere[i].text);
		while (at && (word = strsep(&at, " ")))
			if (strlen(word) > 2)
				printf("complete -c cloche -n '__cloche_at %s' -l %s\n", elsewhere[i].name, word + 2);
		fish_rule(elsewhere[i].name, "-F");
	}
	for (size_t i = 0; commands[i]; i++) {
		printf("complete -c cloche -n __fish_use_subcommand -a %s -d '%s'\n", commands[i]->name,
		       commands[i]->text);
		fish_command(commands[i]);
	}
}

/* ---- names ---- */

static const struct kind {
	const char *name, *path, *key, *field;
} kinds[] = {
	{ "sandbox", "/v1/sandboxes?limit=1000", "sandboxes", "name" },
	{ "checkpoint", "/v1/checkpoints?limit=1000", "checkpoints", "id" },
	{ "template", "/v1/templates", "templates", "name" },
	{ "image", "/v1/images", "images", "name" },
	{ "pool", "/v1/pools", "pools", "name" },
	{ "secret", "/v1/secrets", "secrets", "name" },
	{ "tenant", "/v1/tenants", "tenants", "id" },
};

static void names_of(struct conn *c, const struct kind *k)
{
	AUTO_JSON json_t *v = NULL;
	const json_t *one;
	size_t i;

	if (conn_get(c, k->path, &v, NULL) < 0)
		return;
	json_array_foreach(json_object_get(v, k->key), i, one)
	{
		const char *name = *show_str(one, k->field) ? show_str(one, k->field) : show_str(one, "id");

		/* It becomes words of a shell: nothing but what a name may have. */
		if (strlen(name) ==
		    strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-:/@"))
			puts(name);
	}
}

/* For the scripts: one name per line, quickly or not at all, and never an error. */
static int names(const struct args *a)
{
	struct conn_opts o = a->conn;
	AUTO(conn_close) struct conn *c = NULL;

	o.timeout_ms = NAMES_MS;
	if (conn_open(&o, &c, NULL) < 0)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		for (int k = 1; k < a->nrest; k++)
			if (!strcmp(a->rest[k], kinds[i].name))
				names_of(c, &kinds[i]);
	return 0;
}

static int run(struct args *a, struct err *e)
{
	const char *shell;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	if (a->nrest && !strcmp(a->rest[0], "names"))
		return names(a);
	r = args_count(a, 1, 1, "bash, zsh or fish", e);
	if (r < 0)
		return r;
	shell = a->rest[0];
	if (!strcmp(shell, "bash")) {
		bash();
	} else if (!strcmp(shell, "zsh")) {
		zsh();
	} else if (!strcmp(shell, "fish")) {
		fish();
	} else {
		err_set(e, ERR_INVALID, -EINVAL, "unknown shell '%.20s'", shell);
		err_remedy(e, "use bash, zsh or fish");
		return -EINVAL;
	}
	return 0;
}

const struct command cmd_completion = {
	.name = "completion",
	.text = "tab completion for bash, zsh and fish",
	.help = help,
	.complete = COMPLETE_WORDS,
	.words = "bash zsh fish",
	.run = run,
};
