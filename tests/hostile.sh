#!/bin/bash
# Shared by the tests in which another user attacks root.  Source it after
# lib.sh.  The caller sets work, a directory that all may enter.
# shellcheck disable=SC2016,SC2154 # perl's variables; work is the caller's

# script(1) runs its command by this shell.  It takes sh where nothing is said, which
# does not know how bash quotes.
export SHELL=/bin/bash

# Types its argument into the terminals that it can reach, as TIOCSTI has it:
# the controlling one, and those that its descriptors are.
# shellcheck disable=SC2034 # for the callers
type_into_terminals='
	for my $name ("/dev/tty", map { "/dev/fd/$_" } 0 .. 2) {
		open(my $terminal, "<", $name) || open($terminal, ">", $name) or next;
		ioctl($terminal, 0x5412, my $c = $_) for split //, "$ARGV[0]\n";
	}
	for my $fd (0 .. 2) {
		open(my $terminal, "<&=", $fd) or next;
		ioctl($terminal, 0x5412, my $c = $_) for split //, "$ARGV[0]\n";
	}'

# Newer kernels can refuse this to everybody but root.
tiocsti_works() { [ "$(cat /proc/sys/dev/tty/legacy_tiocsti 2>/dev/null || echo 1)" = 1 ]; }

# at_terminal TEXT: a shell of root's runs TEXT at a terminal.  What root types
# comes after TEXT has ended.  All lines that arrive at the terminal until then are
# printed, as "typed: LINE".  TEXT ends what it has started before it ends.
at_terminal() {
	rm -f "$work/terminal-"{ended,done}
	printf '%s\n' "$1" >"$work/terminal-text"
	{
		for _ in {1..1200}; do [ ! -e "$work/terminal-ended" ] || break && sleep 0.1; done
		echo end
		for _ in {1..1200}; do [ ! -e "$work/terminal-done" ] || break && sleep 0.1; done
	} | script -qec "W=$(printf %q "$work") bash -c '
		. \"\$W/terminal-text\"
		touch \"\$W/terminal-ended\"
		while IFS= read -r line && [ \"\$line\" != end ]; do printf \"typed: %s\\n\" \"\$line\"; done
		touch \"\$W/terminal-done\"'" /dev/null
}
