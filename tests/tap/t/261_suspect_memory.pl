
# Copyright (c) 2026, the persistent-cache developers

# A process that dies of a fault may have overwritten shared buffers before,
# so the start after that is cold, in every mode, and says why.  Other ways to
# die say nothing against the pages: then mode always stays warm.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();

use constant SUSPECT_OFFSET => 8192 + 192;
use constant SUSPECT_SIZE => 64;

my %number = (SEGV => 11, ILL => 4, FPE => 8, BUS => 7, TRAP => 5, SYS => 31, ABRT => 6);

sub suspect
{
	my ($signal) = @_;
	return qr/^server process \(PID \d+\) was terminated by signal $signal: .*, and may have overwritten cached pages before$/;
}

sub make_node
{
	my ($name, $mode, %params) = @_;
	my $node = new_node($name, mode => $mode,
		conf => "synchronous_commit = on\nwal_level = replica\n" . ($params{conf} // ''));

	$node->start;
	load_data($node);
	$node->safe_psql('postgres', q{
CREATE EXTENSION pg_pcache;
CREATE FUNCTION break(int) RETURNS void AS 'pcache_inject', 'pcache_inject_break' LANGUAGE C;
CREATE FUNCTION panic() RETURNS void AS 'pcache_inject', 'pcache_inject_panic' LANGUAGE C;
CREATE FUNCTION abort() RETURNS void AS 'pcache_inject', 'pcache_inject_abort' LANGUAGE C});
	return $node;
}

# All that is cached is clean and, in mode always, sealed.  Returns the number
# of permanent valid buffers.
sub settle
{
	my ($node) = @_;
	my $valid;

	warm_up($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	$valid = permanent_buffers($node);
	$node->safe_psql('postgres', 'SELECT pg_pcache_seal()');
	return $valid;
}

# Overwrite text in a page of t_heap, in shared memory, as a wild store would.
sub scribble
{
	my ($node) = @_;
	my $pool = pool_file($node);
	my ($buffer) = $node->safe_psql('postgres', q{
SELECT bufferid FROM pg_buffercache WHERE relforknumber = 0
  AND relfilenode = pg_relation_filenode('t_heap') AND relblocknumber = 20});
	my $offset = read_superblock($pool)->{blocks_offset} + ($buffer - 1) * BLCKSZ + 8000;

	like(read_bytes($pool, $offset, 16), qr/^[0-9a-f]{16}$/, 'there is text to be overwritten');
	write_bytes($pool, $offset, 'X' x 16);
	return;
}

# A process of some kind, and which sort of psql it belongs to, if any.
sub pid_of
{
	my ($node, $type) = @_;
	return $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = '$type' LIMIT 1");
}

sub backend
{
	my ($node) = @_;
	my $psql = $node->background_psql('postgres', on_error_stop => 0);
	return ($psql, $psql->query_safe('SELECT pg_backend_pid()'));
}

# The server is on its way down, by itself: wait for the end of it.
sub wait_for_end
{
	my ($node) = @_;
	my $pidfile = $node->data_dir . '/postmaster.pid';

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if !-e $pidfile;
		select undef, undef, undef, 0.1;
	}
	die 'the server does not go down' if -e $pidfile;
	$node->{_pid} = undef;
	return;
}

sub signal_backend
{
	my ($node, $signal) = @_;
	my ($psql, $pid) = backend($node);

	kill $signal, $pid;
	wait_for_end($node);
	eval { $psql->quit };
	return;
}

sub signal_process
{
	my ($node, $signal, $type) = @_;

	kill $signal, pid_of($node, $type);
	wait_for_end($node);
	return;
}

sub call
{
	my ($node, $sql) = @_;

	$node->psql('postgres', $sql, stderr => \my $stderr);
	wait_for_end($node);
	return;
}

# Stop a process, and have it die of a signal once it goes on.
sub stop_with_pending
{
	my ($pid, $signal) = @_;

	kill 'STOP', $pid;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if slurp_file("/proc/$pid/stat") =~ /^\d+ \(.*\) T /s;
		select undef, undef, undef, 0.1;
	}
	kill $signal, $pid;
	return;
}

# A process is stopped with a SIGSEGV pending, and gets to it only after the
# server has begun to go down for another reason.
sub second_fault
{
	my ($node, $first, $log) = @_;
	my ($psql, $pid) = backend($node);
	my $offset = log_offset($node);

	stop_with_pending($pid, 'SEGV');
	$first->();
	$node->wait_for_log($log, $offset);
	kill 'CONT', $pid;
	wait_for_end($node);
	eval { $psql->quit };
	return;
}

# ---------------------------------------------------------------------------
# Each signal, mode always.  The server does not restart by itself, so that
# pg_pcache verify can be asked in between.
# ---------------------------------------------------------------------------
my $node = make_node('always', 'always');
my $expected = checksums($node, tables => [LOGGED]);
my ($offset, $outcome, $valid, $reason);

# The case that all this is about.
settle($node);
scribble($node);
signal_backend($node, 'SEGV');
cold_after_crash($node, 'suspect_memory', suspect(11), 'wild store');
contents_right($node, $expected, 'wild store');
is($node->safe_psql('postgres', 'SELECT last_start, last_start_reason FROM pg_pcache_pool'),
	'cold|suspect memory', 'wild store: the view says why');
is(read_bytes(pool_file($node), SUSPECT_OFFSET, 8), "\0" x 8,
	'wild store: the note is gone once the server runs');
is($node->safe_psql('postgres', 'SELECT warm FROM pg_pcache_next_start($$crash$$)'),
	't', 'wild store: the next crash would be warm');
$valid = settle($node);
signal_backend($node, 'KILL');
warm_after_crash($node, $valid, 'wild store, then a crash');
contents_right($node, $expected, 'wild store, then a crash');

for my $case (
	[ 'SIGSEGV', 'SEGV', sub { signal_process($node, 'SEGV', 'walwriter') } ],
	[ 'SIGILL', 'ILL', sub { signal_backend($node, 'ILL') } ],
	# backends make an error of it
	[ 'SIGFPE', 'FPE', sub { signal_process($node, 'FPE', 'walwriter') } ],
	[ 'SIGBUS that is sent', 'BUS', sub { signal_backend($node, 'BUS') } ],
	[ 'SIGTRAP', 'TRAP', sub { signal_process($node, 'TRAP', 'checkpointer') } ],
	[ 'SIGSYS', 'SYS', sub { signal_process($node, 'SYS', 'persistent cache sealer') } ],
	[ 'SIGABRT that is sent', 'ABRT', sub { signal_backend($node, 'ABRT') } ],
	[ 'abort()', 'ABRT', sub { call($node, 'SELECT abort()') } ],
	[ 'SIGSEGV of a second process', 'SEGV', sub {
		second_fault($node, sub { kill 'KILL', pid_of($node, 'walwriter') },
			qr/terminating any other active server processes/);
	} ],
	[ 'SIGSEGV in an immediate shutdown', 'SEGV', sub {
		second_fault($node, sub { kill 'QUIT', $node->{_pid} },
			qr/received immediate shutdown request/);
	} ],
	[ 'SIGSEGV in a fast shutdown', 'SEGV', sub {
		second_fault($node, sub { kill 'INT', $node->{_pid} },
			qr/received fast shutdown request/);
	} ])
{
	my ($name, $signal, $crash) = @$case;

	settle($node);
	scribble($node);
	$crash->();
	cold_after_crash($node, 'suspect_memory', suspect($number{$signal}), $name);
	contents_right($node, $expected, $name);
}

for my $case (
	[ 'SIGKILL', sub { signal_backend($node, 'KILL') } ],
	[ 'SIGKILL of the checkpointer', sub { signal_process($node, 'KILL', 'checkpointer') } ],
	[ 'immediate stop', sub { $node->stop('immediate') } ],
	[ 'SIGQUIT of a backend', sub { signal_backend($node, 'QUIT') } ],
	[ 'PANIC', sub { call($node, 'SELECT panic()') } ],
	[ 'death of the postmaster', sub { kill_all($node) } ])
{
	my ($name, $crash) = @$case;

	$valid = settle($node);
	$crash->();
	warm_after_crash($node, $valid, $name, ratio => 0.98);
	contents_right($node, $expected, $name);
}

# A PANIC does not explain the abort() of another process, nor the other way
# round.
settle($node);
$offset = log_offset($node);
{
	my ($psql, $pid) = backend($node);

	stop_with_pending($pid, 'ABRT');
	$node->psql('postgres', 'SELECT panic()', stderr => \my $stderr);
	$node->wait_for_log(qr/terminating any other active server processes/, $offset);
	kill 'CONT', $pid;
	wait_for_end($node);
	eval { $psql->quit };
}
cold_after_crash($node, 'suspect_memory', suspect(6), 'PANIC, and abort() of another');
contents_right($node, $expected, 'PANIC, and abort() of another');

# Memory errors of the pool are SIGBUS, and no fault.
settle($node);
my $buffer = $node->safe_psql('postgres', q{
SELECT bufferid FROM pg_buffercache WHERE relforknumber = 0
  AND relfilenode = pg_relation_filenode('t_heap') AND relblocknumber = 20});
call($node, "SELECT break($buffer); SELECT count(filler) FROM t_heap");
$offset = log_offset($node);
$node->start;
$outcome = start_outcome($node, $offset);
is($outcome->{start}, 'warm', 'memory error: warm start');
is($outcome->{dropped}{'bad block'}, 1, 'memory error: one page is lost');
contents_right($node, $expected, 'memory error');

# A fault when the pool was cut off: the postmaster must survive that, and
# the server comes back, although there is no place for the note.
settle($node);
{
	my ($psql, $pid) = backend($node);
	my $size = -s pool_file($node);

	$offset = log_offset($node);
	# nobody may touch the pool before it is the postmaster's turn
	stop_with_pending($pid, 'SEGV');
	my @others = grep { $_ != $pid } children($node);
	kill 'STOP', @others;
	truncate pool_file($node), 0 or die "could not truncate the pool: $!";
	kill 'CONT', $pid;
	$node->wait_for_log(qr/terminating any other active server processes/, $offset);
	kill 'CONT', @others;
	wait_for_end($node);
	eval { $psql->quit };
	is(-s pool_file($node), 0, 'cut off, and a fault: the pool is as it was');
	$offset = log_offset($node);
	$node->start;
	is(start_outcome($node, $offset)->{start}, 'cold', 'cut off, and a fault: cold start');
	is(-s pool_file($node), $size, 'cut off, and a fault: the pool is whole again');
	contents_right($node, $expected, 'cut off, and a fault');
	# slots that met the end of the file count as bad memory no longer
	restart_warm($node, 'cut off, and a fault, restarted');
}

# A run without the pool does not make the note forgotten.
settle($node);
scribble($node);
signal_backend($node, 'SEGV');
set_mode($node, 'off');
$node->start;
contents_right($node, $expected, 'mode off after a fault');
$node->stop;
set_mode($node, 'always');
isnt(read_bytes(pool_file($node), SUSPECT_OFFSET, 8), "\0" x 8, 'mode off in between: the note is still there');
# there are two reasons now, and the other one is asked for first
cold_after_crash($node, 'incarnation', qr/^the cluster was run without the pool$/, 'mode off in between');
contents_right($node, $expected, 'mode off in between');
is(read_bytes(pool_file($node), SUSPECT_OFFSET, 8), "\0" x 8, 'mode off in between: it is gone after a cold start for another reason');

warm_up($node);
$node->stop;

# ---------------------------------------------------------------------------
# The note as such, below a pool that was saved.
# ---------------------------------------------------------------------------
my $note = pack 'QqZ44', 11 << 32 | 12345, time, '';

$note .= pack 'L', crc32c($note);
is(length $note, SUSPECT_SIZE, 'a note is a cache line');
for my $case ([ 'note', $note, suspect(11) ],
	[ 'damaged note', substr($note, 0, 8) . 'x' x 56,
		qr/^a server process may have died of a fault \(the pool's note of that is damaged\), and may have overwritten cached pages before$/ ],
	[ 'half a note', substr($note, 0, 8) . "\0" x 56,
		qr/^a server process may have died of a fault/ ])
{
	my ($name, $bytes, $message) = @$case;

	is(verify_json($node)->{rc}, 0, "$name: it would have been warm");
	write_bytes(pool_file($node), SUSPECT_OFFSET, $bytes);
	cold_after_crash($node, 'suspect_memory', $message, "$name, clean stop");
	contents_right($node, $expected, "$name, clean stop");
	restart_warm($node, "$name, then a clean stop");
	warm_up($node);
	$node->stop;
}

# pg_pcache shows it, and does not lose it unless the pool is emptied.
write_bytes(pool_file($node), SUSPECT_OFFSET, $note);
like((pcache($node, 'status'))[1], qr/^suspect memory:\s+server process \(PID 12345\) was terminated by signal 11: /m,
	'pg_pcache status tells of a note');
is(status_json($node)->{suspect_memory}{signal}, 11, 'in JSON as well');
is(status_json($node)->{suspect_memory}{pid}, 12345, 'with the PID');
for my $options ([], [ '--resize' => '64MB' ])
{
	my $name = "pg_pcache rebuild @$options";

	is((pcache($node, 'rebuild', @$options))[0], 2, "$name: still cold");
	is(verify_json($node)->{reason}, 'suspect_memory', "$name: for that reason");
}
# The sector that holds it is exchanged: it is put back, or if it could not be
# read there is a note afterwards, since there may have been one.
{
	for my $step (qw(marked-for-note punched allocated put-back note-restored))
	{
		write_bytes(pool_file($node), SUSPECT_OFFSET, $note);
		# the sector behind
		local $ENV{PG_PCACHE_BAD_BLOCKS} = '8704:512';
		local $ENV{PG_PCACHE_KILL_AT} = $step;
		write_bytes(pool_file($node), 8704, 'x');
		is((pcache($node, 'rebuild'))[0], -9, "rebuild killed at $step");
		delete $ENV{PG_PCACHE_BAD_BLOCKS};
		is(verify_json($node)->{rc}, 2, "rebuild killed at $step: cold");
		# as it was
		patch_superblock(pool_file($node), state => STATE_CLEAN);
	}
	write_bytes(pool_file($node), SUSPECT_OFFSET, $note);
	write_bytes(pool_file($node), 8704, 'x');
	{
		local $ENV{PG_PCACHE_BAD_BLOCKS} = '8704:512';
		is((pcache($node, 'rebuild'))[0], 2, 'bad block beside a note: still cold');
	}
	is(read_bytes(pool_file($node), SUSPECT_OFFSET, SUSPECT_SIZE), $note, 'bad block beside a note: it is put back');
	is(read_superblock(pool_file($node))->{state}, STATE_CLEAN, 'bad block beside a note: so is the state');

	write_bytes(pool_file($node), SUSPECT_OFFSET, "\0" x SUSPECT_SIZE);
	is(verify_json($node)->{rc}, 0, 'no note: warm');
	write_bytes(pool_file($node), 8704, 'x');
	{
		local $ENV{PG_PCACHE_BAD_BLOCKS} = '8704:512';
		is((pcache($node, 'rebuild'))[0], 0, 'bad block, no note beside it: warm');
	}
	is(verify_json($node)->{rc}, 0, 'bad block, no note beside it: and warm it is');
	write_bytes(pool_file($node), SUSPECT_OFFSET, $note);
	{
		local $ENV{PG_PCACHE_BAD_BLOCKS} = '8192:512';
		is((pcache($node, 'rebuild'))[0], 2, 'bad block below a note: still cold');
	}
	like(verify_json($node)->{detail}, qr/^a server process may have died of a fault/,
		'bad block below a note: there may have been one');
}

for my $options ([ '--reset', '--warm-from-files' ], ['--warm-from-files'])
{
	my $name = "pg_pcache rebuild @$options";
	my ($slot) = sealed_slots(pool_file($node));

	write_bytes(pool_file($node), SUSPECT_OFFSET, $note);
	# either drops all pages, which the note is about, and reads others
	write_bytes(pool_file($node), read_superblock(pool_file($node))->{blocks_offset} + $slot * BLCKSZ + 4000, 'X' x 4000)
	  if defined $slot;
	is((pcache($node, 'rebuild', @$options))[0], 0, "$name: warm");
	like((pcache($node, 'status'))[1], qr/^suspect memory:\s+no$/m, "$name: there is no note");
	is(status_json($node)->{suspect_memory}, undef, "$name: nor in JSON");
	$offset = log_offset($node);
	$node->start;
	is(start_outcome($node, $offset)->{start}, 'warm', "$name: warm start");
	contents_right($node, $expected, $name);
	warm_up($node);
	$node->stop;
}

# ---------------------------------------------------------------------------
# A server that restarts by itself.
# ---------------------------------------------------------------------------
for my $mode (qw(always planned_restart))
{
	my $other = make_node("restarting_$mode", $mode, conf => 'restart_after_crash = on');
	my $sums = checksums($other, tables => [LOGGED]);

	for my $case ([ 'SIGSEGV', 'SEGV' ], [ 'SIGKILL', 'KILL' ])
	{
		my ($name, $signal) = @$case;
		my ($psql, $pid);

		$name = "restart_after_crash, $mode, $name";
		settle($other);
		scribble($other) if $signal eq 'SEGV';
		($psql, $pid) = backend($other);
		$offset = log_offset($other);
		kill $signal, $pid;
		$other->wait_for_log(qr/persistent cache: (?:kept|starting cold)/, $offset);
		wait_until_back($other);
		eval { $psql->quit };
		$outcome = start_outcome($other, $offset);
		if ($signal eq 'KILL' && $mode eq 'always')
		{
			is($outcome->{start}, 'warm', "$name: warm start");
		}
		else
		{
			is($outcome->{start}, 'cold', "$name: cold start");
			like($outcome->{reason},
				$signal eq 'SEGV' ? suspect(11) : qr/^the server was not shut down cleanly$/,
				"$name: for the right reason");
		}
		contents_right($other, $sums, $name);
	}
	restart_warm($other, "restart_after_crash, $mode, then a clean stop");
	$other->stop;
}

# Without, in the other mode.
$node = make_node('planned', 'planned_restart');
$expected = checksums($node, tables => [LOGGED]);
settle($node);
scribble($node);
signal_backend($node, 'SEGV');
cold_after_crash($node, 'suspect_memory', suspect(11), 'planned_restart, SIGSEGV');
contents_right($node, $expected, 'planned_restart, SIGSEGV');
settle($node);
signal_backend($node, 'KILL');
cold_after_crash($node, 'dirty', qr/^the server was not shut down cleanly$/, 'planned_restart, SIGKILL');

# The postmaster must not touch the note if it is on a bad block.
$node->stop;
$node->append_conf('postgresql.conf', qq{
shared_preload_libraries = 'pcache_inject'
pcache_inject.bad_blocks = '@{[ SUSPECT_OFFSET ]}:64'});
my $bad = qr/^the pool has a bad block where it says whether a server process died of a fault$/;
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, $bad, 'bad block');
signal_backend($node, 'SEGV');
is(read_bytes(pool_file($node), SUSPECT_OFFSET, 8), "\0" x 8, 'bad block: it was not touched');
$offset = log_offset($node);
$node->start;
is(start_outcome($node, $offset)->{start}, 'cold', 'bad block, SIGSEGV: cold');
contents_right($node, $expected, 'bad block, SIGSEGV');
$node->stop;
set_mode($node, 'always');
start_fails($node, qr/cannot be used: too many of its blocks are bad/, 'bad block, mode always');

# ---------------------------------------------------------------------------
# The logging collector may die as it likes: it does not have the pool.
# ---------------------------------------------------------------------------
$node = make_node('collector', 'always', conf => 'logging_collector = on');
my ($logger) = logger_pid($node);
my $pool = pool_file($node);

unlike(slurp_file("/proc/$logger/maps"), qr/\Q$pool\E/, 'the logging collector does not map the pool');
is(scalar(grep { (readlink($_) // '') eq $pool } glob "/proc/$logger/fd/*"),
	0, 'the logging collector does not hold the pool open');
kill 'SEGV', $logger;
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if (logger_pid($node) // $logger) != $logger;
	select undef, undef, undef, 0.1;
}
isnt(logger_pid($node), $logger, 'another logging collector was started');
is($node->safe_psql('postgres', 'SELECT warm FROM pg_pcache_next_start($$crash$$)'),
	't', 'the next start would be warm');
$node->stop;
done_testing();

# The PIDs of the postmaster's children.
sub children
{
	my ($node) = @_;
	my @pids;

	for my $stat (glob '/proc/[0-9]*/stat')
	{
		my $line = eval { slurp_file($stat) } // next;
		push @pids, $1 if $line =~ /^(\d+) \(.*\) \S+ $node->{_pid} /s;
	}
	return @pids;
}

sub logger_pid
{
	my ($node) = @_;

	for my $file (glob '/proc/[0-9]*/cmdline')
	{
		my $line = eval { slurp_file($file) } // next;
		my ($pid) = $file =~ /(\d+)/;

		return $pid
		  if $line =~ /logger/
		  && (eval { slurp_file("/proc/$pid/stat") } // '') =~ /^\d+ \(.*\) [^Z] $node->{_pid} /s;
	}
	return undef;
}
