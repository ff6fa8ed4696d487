
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCacheMoment - a process is stopped at a place in its code, and then all are killed

=head1 SYNOPSIS

  use PCacheMoment;
  use PCacheModule;

  plan skip_all => why_no_moments() if why_no_moments();
  stop_session($node, 'a row is inserted', sql => 'INSERT INTO m VALUES (1)',
      at => [ 'heap_insert', 'MarkBufferDirty' ]);
  killed_there($node, 'a row is inserted', dropped => [ 'in change' ]);

=head1 DESCRIPTION

gdb attaches to a process, waits until it is at a place, leaves it stopped by SIGSTOP,
and goes.  So everything can be killed while one or more processes are in the middle of
something.  Stock servers export their functions, but may have no debug symbols.

A place is a list of steps, which are taken one after the other:

  'function'       the process enters this function
  'function 3'     ... but for the first three times
  'return'         the function that was entered last returns
  'error'          the function that was entered last is asked for block 2^31, which
                   no relation has
  'tag'            the buffer whose header the last step has locked gets another
                   tag; the header is locked still

A function that another major has under another name is given as [ name, name ]: the
first one that the server has is taken.

=cut

package PCacheMoment;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use IPC::Run ();
use PCacheModule;
use POSIX qw(mkfifo uname);
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  why_no_moments
  has_function
  stop_session
  stop_process
  start_held
  start_until
  why_no_start_kills
  kill_start
  stop_signal
  idle_session
  killed_there
  finish_sessions
);

# A place is reached in a second, or on a busy machine some time later, or never.
use constant LIMIT => $PostgreSQL::Test::Utils::timeout_default;

# The registers with the first two arguments of a function.
my %ARGUMENTS = (x86_64 => [qw($rdi $rsi)], aarch64 => [qw($x0 $x1)]);
my $arguments = $ARGUMENTS{ (uname())[4] };

# What is not to be read, which takes time, and what is not to be asked.  Signals go to
# the process as if gdb was not there.
my @OPTIONS = ('-nx', '-batch', '--readnever',
	map { ('-iex' => $_) } 'set auto-solib-add off', 'set auto-load off',
	'set pagination off', 'set confirm off', 'set breakpoint pending off', 'set width 0');
my $SIGNALS = "handle all nostop noprint pass\nhandle SIGINT nostop noprint pass\n";

# Why can gdb not be used here?  Undef if it can: it attaches to a process that is no
# child of its.
sub why_no_moments
{
	my ($pid, $out);

	return 'this is a CPU whose registers the test does not know' unless $arguments;
	return 'gdb is not installed' unless grep { -x "$_/gdb" } split /:/, $ENV{PATH};
	$pid = fork // die "fork: $!";
	exec 'sleep', '60' or die if $pid == 0;
	IPC::Run::run([ 'gdb', @OPTIONS, '-p' => $pid, '-ex' => 'detach' ], '<' => \undef, '>' => \$out, '2>&1');
	kill 'KILL', $pid;
	waitpid $pid, 0;
	return if $out =~ /Inferior 1 .* detached/;
	my ($scope) = -e '/proc/sys/kernel/yama/ptrace_scope' ? slurp_file('/proc/sys/kernel/yama/ptrace_scope') =~ /(\d)/ : ();
	return 'gdb cannot attach to processes: '
	  . ($scope ? "kernel.yama.ptrace_scope is $scope" : $out =~ /^(.*ptrace.*)$/m ? $1 : 'nobody knows why');
}

# What the server exports.
my %functions;

sub has_function
{
	my ($name) = @_;

	if (!%functions)
	{
		# the server that is tested may be a copy of what pg_config tells
		my ($postgres) = grep { -x } map { "$_/postgres" } split /:/, $ENV{PATH};
		my ($symbols) = run_command([ 'nm', '-D', '--defined-only', $postgres ]);

		$functions{$1} = 1 while $symbols =~ / T (\w+)$/mg;
	}
	return $functions{$name};
}

# The first of these functions that the server has.
sub function_of
{
	my ($names) = @_;
	my @names = ref $names ? @$names : $names;
	my ($name) = grep { has_function(s/ .*//r) } @names;

	return $name // die "the server has no function @names";
}

# The commands for a list of steps.
sub commands
{
	my @steps = @_;
	my $commands = '';

	for my $step (@steps)
	{
		if (ref $step || $step !~ /^(return|error|tag)$/)
		{
			my ($name, $times) = split / /, function_of($step);

			$commands .= "tbreak *$name\n" . ($times ? "ignore \$bpnum $times\n" : '')
			  . "continue\nset \$first = $arguments->[0]\n";
		}
		elsif ($step eq 'error')
		{
			$commands .= "set $arguments->[1] = 0x80000000\n";
		}
		elsif ($step eq 'tag')
		{
			# There is no function between the lock and the tag.  The header of another
			# buffer may be locked first, for another purpose.
			$commands .= q{
set $changed = 0
while !$changed
  tbreak *LockBufHdr
  continue
  set $header = (unsigned int *) $first_argument
  set $rel = $header[2]
  set $block = $header[4]
  finish
  set $n = 0
  while $n < 100 && !$changed
    stepi
    set $n = $n + 1
    set $changed = $header[2] != $rel && $header[4] != $block
  end
end
printf "moment: tag was %u of %u, is %u of %u\n", $block, $rel, $header[4], $header[2]
} =~ s/\$first_argument/$arguments->[0]/r;
		}
		else
		{
			$commands .= "finish\n";
		}
	}
	return $commands;
}

my $scripts = 0;

# Have gdb attach to a process.  Returns when the process is going on, and gdb waits for
# it to be at the place.
sub attach
{
	my ($node, $pid, $at, %params) = @_;
	# not by its PID, which comes round again on a busy machine
	my $script = $node->basedir . '/gdb.' . ++$scripts;
	my %gdb = (pid => $pid, out => '', in => '');

	# its mark of the first breakpoint tells that the process can go on
	my $commands = commands(@$at);
	# an interrupted session goes on, and so does one that is to fail on its own account
	my $leave = $params{go_on} ? '' : 'shell kill -' . ($params{cancel} ? 'INT' : 'STOP') . " $pid\n";

	append_to_file($script, "${SIGNALS}echo moment: attached\\n\n${commands}"
		  . "echo moment: in\\n\ninfo symbol \$pc\nbt 6\n${leave}echo moment: reached\\n\ndetach\n");
	$gdb{run} = IPC::Run::start([ 'gdb', @OPTIONS, '-p' => $pid, '-x' => $script ],
		'<' => \undef, '>' => \$gdb{out}, '2>&1', IPC::Run::timeout(LIMIT));
	eval { $gdb{run}->pump while $gdb{out} !~ /moment: attached/; 1 } or diag('gdb does not attach');
	return \%gdb;
}

# A test: the process is at its place.  Whether it is, gdb tells.
sub reached
{
	my ($gdb, $name) = @_;
	my $reached;

	my $state = '';

	eval { $gdb->{run}->pump while $gdb->{run}->pumpable; $gdb->{run}->finish; 1 } or do
	{
		$state = join ', ', map { "$_: " . (eval { slurp_file("/proc/$gdb->{pid}/$_") } // '') } qw(stat syscall wchan);
		eval { $gdb->{run}->kill_kill };
	};
	$reached = $gdb->{out} =~ /moment: reached/;
	ok($reached, "$name: reached") or diag("$gdb->{out}\n$state");
	note($1) if $gdb->{out} =~ /(moment: tag.*)/;
	note($_) for $gdb->{out} =~ /^(#\d+ .*)/mg;
	return $reached;
}

my @sessions;

=pod

=item stop_session(node, name, sql => SQL, at => [steps], prepare => SQL)

A session runs the SQL, having prepared for it, and is stopped at the place.  Returns
the session.  With go_on => 1 it goes on from there, and the call waits for its end.  With
cancel => 1 its query is cancelled there.

=cut

sub stop_session
{
	my ($node, $name, %params) = @_;
	my $psql = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $psql->query('SELECT pg_backend_pid()');
	my $gdb;

	push @sessions, $psql;
	$psql->query($params{prepare}) if $params{prepare};
	$gdb = attach($node, $pid, $params{at}, %params);
	$psql->query_until(qr/^go$/m, "\\echo go\n$params{sql};\n");
	reached($gdb, $name);
	$psql->query('SELECT 1') if $params{go_on} || $params{cancel};
	return $psql;
}

# The child of a node's postmaster whose title has this.
sub child
{
	my ($node, $title) = @_;

	for (1 .. 100 * LIMIT)
	{
		for my $stat (glob '/proc/[0-9]*/stat')
		{
			my $line = eval { slurp_file($stat) } // next;
			my ($pid) = $line =~ /^(\d+) \(.*\) \S+ $node->{_pid} /s or next;

			return $pid if (eval { slurp_file("/proc/$pid/cmdline") } // '') =~ /^postgres: .*$title/;
		}
		select undef, undef, undef, 0.01;
	}
	die "there is no $title";
}

# The same for a process of another kind, of which there is one with that title.  A
# session runs the SQL that has it come to the place, and waits.
sub stop_process
{
	my ($node, $name, $title, %params) = @_;
	my $psql = $node->background_psql('postgres', on_error_stop => 0);
	my $gdb = attach($node, child($node, $title), $params{at});

	push @sessions, $psql;
	$psql->query_until(qr/^go$/m, "\\echo go\n$params{sql};\n");
	reached($gdb, $name);
	return;
}

# The system call in which a process waits for its latch: epoll_wait(), or epoll_pwait().
my %WAITS = (x86_64 => qr/^(?:232|281) /, aarch64 => qr/^22 /);

# Stop the processes with these titles while they wait: elsewhere, one may have a lock that
# the others need to come to their place.
sub stop_signal
{
	my ($node, @titles) = @_;
	my $waits = $WAITS{ (uname())[4] } // qr/^/;

	for my $pid (map { child($node, $_) } @titles)
	{
		my $call = '';

		for (1 .. 1000)
		{
			kill 'STOP', $pid;
			select undef, undef, undef, 0.01;
			$call = eval { slurp_file("/proc/$pid/syscall") } // last;
			last if $call =~ $waits;
			kill 'CONT', $pid;
			select undef, undef, undef, 0.01;
		}
		kill 'STOP', $pid;
		note('stopped in system call ' . $call =~ s/ .*//sr);
	}
	return;
}

# A session that does something, and then nothing until everything is killed.
sub idle_session
{
	my ($node, $sql) = @_;
	my $psql = $node->background_psql('postgres');

	push @sessions, $psql;
	$psql->query($sql);
	return;
}

=pod

=item start_held(node, code)

Start a node, and call the code when its pool has been taken up, and before WAL is
replayed.

The startup process reads the progress of replication origins before it replays WAL.
That file is a pipe meanwhile.

=cut

sub start_held
{
	my ($node, $code) = @_;
	my $path = $node->data_dir . '/pg_logical/replorigin_checkpoint';
	my $origins = slurp_file($path);
	my $pipe;

	rename $path, "$path.real" or die;
	mkfifo($path, 0600) or die;
	start_nowait($node);
	child($node, 'startup');
	$code->();
	open $pipe, '>', $path or die;
	binmode $pipe;
	syswrite $pipe, $origins;
	close $pipe;
	rename "$path.real", $path or die;
	return;
}

=pod

=item start_until(node, name, title, at => [steps])

Start a node, whose recovery begins when gdb has attached to the process with that
title ("startup", "checkpointer"), and return when this has been stopped at its place.

=cut

sub start_until
{
	my ($node, $name, $title, %params) = @_;
	my $gdb;

	start_held($node, sub { $gdb = attach($node, child($node, $title), $params{at}) });
	return reached($gdb, $name);
}

# Why can the postmaster not be killed at a function of the library?  Undef if it can.
sub why_no_start_kills
{
	my ($libdir) = run_command([ 'pg_config', '--pkglibdir' ]);
	my ($symbols) = run_command([ 'nm', "$libdir/pg_pcache.so" ]);

	return why_no_moments() // ($symbols =~ / PCacheFillTable$/m ? undef : 'the library was stripped');
}

=pod

=item kill_start(node, name, function)

A test: start a node, and kill the postmaster when it enters a function, of the server or of
the library, for the first time.  It must have no child by then.

=cut

sub kill_start
{
	my ($node, $name, $function) = @_;
	my $out = '';
	my @auto = map { ('-ex' => $_) } 'set auto-solib-add on', 'set breakpoint pending on',
	  'handle all nostop noprint pass', "break $function", 'run', 'echo moment: reached\n', 'bt 3', 'kill';

	local %ENV = $node->_get_env();
	unlink $node->data_dir . '/postmaster.pid';
	my $run = IPC::Run::start([ 'gdb', @OPTIONS, @auto, '--args' => 'postgres', '-D' => $node->data_dir ],
		'<' => \undef, '>' => \$out, '2>&1', my $limit = IPC::Run::timeout(LIMIT));
	eval { $run->finish; 1 } or $run->kill_kill;
	like($out, qr/^Breakpoint 1, .*^moment: reached/ms, "$name: killed in $function") or diag($out);
	unlink $node->data_dir . '/postmaster.pid';
	return;
}

# Sessions whose server was killed.
sub finish_sessions
{
	for my $psql (splice @sessions) { eval { $psql->quit } }
	return;
}

# ------------------------------------------------------------------------------------
# What is in all pages.

# The relations that are compared: ours, and pg_class, which is changed in place.
my $RELATIONS = q{
SELECT c.oid, c.oid::regclass::text AS rel, fork FROM pg_class c, unnest(ARRAY['main', 'vm']) fork
WHERE relkind IN ('r', 'i', 't', 'S') AND relpersistence = 'p'
  AND (relnamespace = 'public'::regnamespace
    OR c.oid IN (SELECT reltoastrelid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
    OR c.oid IN (SELECT indexrelid FROM pg_index JOIN pg_class t ON t.oid = indrelid AND t.oid IN
         (SELECT reltoastrelid FROM pg_class WHERE relnamespace = 'public'::regnamespace))
    OR c.oid = 'pg_class'::regclass OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'pg_class'::regclass))};

# All pages as the server has them, in hex, by relation, fork, and block.
sub raw_pages
{
	my ($node) = @_;
	my $path = $node->basedir . '/pages';
	my %pages;

	$node->safe_psql('postgres', qq{
COPY (WITH r AS MATERIALIZED ($RELATIONS)
  SELECT pg_relation_filepath(oid) || ' ' || rel || ' ' || fork || ' ' || block, encode(get_raw_page(rel, fork, block), 'hex')
  FROM r, generate_series(0, pg_relation_size(oid, fork) / 8192 - 1) block) TO '$path'});
	%pages = map { split /[\t\n]/ } split /^/, slurp_file($path);
	unlink $path;
	return \%pages;
}

# A page without what may differ: its checksum, hints of tuples, and dead items.  Where
# hints are logged, setting one changes the LSN.
sub mask
{
	my ($hex, $is_heap) = @_;
	my $page = pack 'H*', $hex;
	my ($lower, $upper, $special) = unpack '@12 S S S', $page;

	substr($page, 8, 2) = "\0\0";
	return $page if !$is_heap || $lower < 24 || $special != length $page;
	# PD_HAS_FREE_LINES and PD_PAGE_FULL are hints as well, and so is pd_prune_xid
	substr($page, 10, 2) = pack 'S', unpack('@10 S', $page) & ~3;
	substr($page, 20, 4) = "\0" x 4;
	# an image has zeros between items and tuples
	substr($page, $lower, $upper - $lower) = "\0" x ($upper - $lower) if $lower <= $upper && $upper <= $special;
	for (my $at = 24; $at < $lower; $at += 4)
	{
		my $item = unpack "\@$at L", $page;
		my ($offset, $flags, $length) = ($item & 0x7fff, ($item >> 15) & 3, $item >> 17);

		next if $flags != 1;
		# padding is what was there before
		substr($page, $offset + $length, -$length % 8) = "\0" x (-$length % 8);
		# redo does not know which command of its transaction a row is of
		substr($page, $offset + 8, 4) = "\0" x 4;
		substr($page, $offset + 20, 2) = pack 'S', unpack('@' . ($offset + 20) . ' S', $page) & ~0x0f00;
	}
	return $page;
}

# Which pages differ, each as a text.
sub differences
{
	my ($are, $should_be) = @_;
	my %all = (%$are, %$should_be);
	my @different;

	for my $key (sort keys %all)
	{
		my ($is, $right) = ($are->{$key} // '', $should_be->{$key} // '');
		my $is_catalog = $key =~ / pg_class main /;
		my $at = 0;

		next if $is eq $right;
		# no index is a heap
		$_ = length $_ ? mask($_, $key !~ /_(pkey|index|grp|gin|gist|hash|brin|spgist|seq) /) : '' for $is, $right;
		$is_catalog && length $_ and substr($_, 0, 8) = '' for $is, $right;
		# VACUUM has found a page all-visible, and the record that says so in the map is lost
		substr($is, 10, 1) &= chr(~4 & 0xff) if !$is_catalog && ($ENV{PCACHE_RECOVERY} // '') eq 'short' && length $is && length $right && !(ord(substr $right, 10, 1) & 4);
		next if $is eq $right;
		$at++ while substr($is, $at, 1) eq substr($right, $at, 1);
		push @different, "$key, from byte $at on: " . unpack('H16', substr $is, $at) . ', right is ' . unpack('H16', substr $right, $at);
	}
	return @different;
}

# What the server tells when it is asked for what the tables have.  The text of an error
# is told as well: amcheck may find something.
sub answers
{
	my ($node) = @_;

	return eval {
		$node->safe_psql('postgres', q{
SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
SELECT 'm', count(*), sum(id), sum(v), sum(length(s)) FROM m;
RESET ALL; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;
SELECT 'm by key', count(*), sum(id), sum(v) FROM m WHERE id > 0;
SELECT 'm by value', count(*), sum(id), sum(v) FROM m WHERE v >= 0;
SET enable_indexonlyscan = on;
SELECT 'm index only', count(*), sum(id) FROM m WHERE id > 0;
-- its file was reset, and so was what is cached
INSERT INTO t_unlogged SELECT i, 'new' FROM generate_series(1, 1000) i}) . "\n" . contents($node)
	} // "$@";
}

# Which of these pages, as a server has them after a checkpoint, have its files not?
sub differences_from_files
{
	my ($node, $pages) = @_;
	my (%files, @different);

	for my $key (sort keys %$pages)
	{
		my ($path, $rel, $fork, $block) = split / /, $key;
		my $page = pack 'H*', $pages->{$key};
		my $stored;

		# whoever looks sets hints there
		next if $rel =~ /^pg_class/;
		$path = $node->data_dir . "/$path" . ($fork eq 'main' ? '' : "_$fork");
		$files{$path} //= slurp_file($path);
		$stored = substr $files{$path}, $block * length $page, length $page;
		# but for checksums
		substr($_, 8, 2) = "\0\0" for $page, $stored;
		# initialized by an index for later
		next if $page eq $stored || $stored =~ /^\0+$/ && $page =~ /^\0{8}/;
		push @different, $key;
	}
	return @different;
}

# A test: there are no differences.
sub is_same
{
	my ($name, @different) = @_;

	is(scalar @different, 0, $name) or diag(join "\n", grep { defined } @different[ 0 .. 9 ]);
	return;
}

=pod

=item killed_there(node, name, dropped => [reasons], cold => pattern, check => code)

A test: kill everything, and start again.  Contents and pages are those that a start
without the library has.  The start is warm, and has dropped pages for these reasons,
or it is cold for that one.  The code is called with what the oracle tells.  Returns
the outcome.

=cut

sub killed_there
{
	my ($node, $name, %params) = @_;
	my ($right, $offset, $outcome, $pages);

	kill_all($node) if defined $node->{_pid};
	finish_sessions();
	$right = oracle($node, code => sub { return { pages => raw_pages($node), text => answers($node) } });
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	if ($params{cold})
	{
		is($outcome->{start}, 'cold', "$name: cold");
		like($outcome->{reason} // '', $params{cold}, "$name: for the right reason");
	}
	else
	{
		is($outcome->{start}, 'warm', "$name: warm") or diag($outcome->{reason} // $outcome->{log});
		cmp_ok($outcome->{kept} // 0, '>', $params{at_least} // 300, "$name: kept " . ($outcome->{kept} // 0) . ' pages');
	}
	note("$name: dropped: $_ $outcome->{dropped}{$_}") for sort keys %{ $outcome->{dropped} };
	cmp_ok($outcome->{dropped}{$_} // 0, '>=', 1, "$name: dropped, $_") for @{ $params{dropped} // [] };
	# before anybody has set hints, which would have pages written
	$pages = eval { $node->safe_psql('postgres', 'CHECKPOINT'); raw_pages($node) } // do { diag($@); {} };
	is_same("$name: all " . keys(%{ $right->{pages} }) . ' pages are right', differences($pages, $right->{pages}));
	is_same("$name: the files have what is cached", differences_from_files($node, $pages));
	is(answers($node), $right->{text}, "$name: contents are right");
	unlike($outcome->{log}, qr/PANIC|invalid page|TRAP|was terminated by signal/, "$name: nothing is wrong in the log");
	$params{check}->($right->{text}) if $params{check};
	return $outcome;
}

1;
