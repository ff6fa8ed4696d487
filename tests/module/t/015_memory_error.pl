
# Copyright (c) 2026, the persistent-cache developers

# A memory error in the pool: the process that meets it dies, the next start is cold, and
# the memory is not used again, over restarts and kills, until there is a new pool.  gdb
# has a SIGBUS look like one that the kernel sends.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PCacheMoment;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => why_no_moments() if why_no_moments();

my $BUS_MCEERR_AR = 4;
my $node = module_node('main', mode => 'always', conf => "restart_after_crash = on\n");
my $pool = pool_file($node);
my ($offset, $outcome, $right);

# Where a process has mapped the pool.
sub base_of
{
	my ($pid) = @_;
	my ($base) = slurp_file("/proc/$pid/maps") =~ /^([0-9a-f]+)-\S+ rw-s 0+ \S+ \d+ +\Q$pool\E$/m;

	return $base // die 'the pool is not mapped';
}

# A session dies of a SIGBUS with this code, about so many bytes behind the start of the
# pool.  The server begins anew.
sub meet_error
{
	my ($name, $code, $at) = @_;
	my $psql = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $psql->query('SELECT pg_backend_pid()');
	my $base = base_of($pid);
	my $out;

	$offset = log_offset($node);
	IPC::Run::run([ qw(gdb -nx -batch --readnever -iex), 'set auto-solib-add off', '-p' => $pid,
			map { ('-ex' => $_) } 'handle SIGBUS stop print pass', "shell kill -BUS $pid", 'continue',
			"set \$_siginfo.si_code = $code", "set \$_siginfo._sifields._sigfault.si_addr = (void *) (0x$base + $at)",
			'set $_siginfo._sifields._sigfault._addr_lsb = 12', 'handle all nostop noprint pass', 'continue' ],
		'<' => \undef, '>' => \$out, '2>&1', IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	like($out, qr/SIGBUS/, "$name: a process has met it") or diag($out);
	$node->wait_for_log(qr/was terminated by signal 7.*persistent cache: starting cold.*database system is ready to accept connections/s, $offset);
	wait_until_back($node);
	eval { $psql->quit };
	return start_outcome($node, $offset);
}

sub in_the_view { return $node->safe_psql('postgres', 'SELECT retired, media, bad_bytes FROM pg_pcache_pool') }

# Without unlogged tables, which a crash empties.
sub logged { return contents($_[0]) =~ s/^t_(unlogged|seq).*\n//mgr }

$node->start;
load_tables($node);
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
warm_pages($node);
$right = logged($node);
my $blocks = read_superblock($pool)->{blocks_offset};
my $buffer = $node->safe_psql('postgres', q{SELECT max(bufferid) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t_heap') AND relforknumber = 0});
my $used = qq{SELECT count(*) FROM pg_buffercache WHERE bufferid = $buffer AND relfilenode IS NOT NULL};
is($node->safe_psql('postgres', $used), 1, 'before: the buffer is used');
is(in_the_view(), '0|clean|0', 'before: no memory is bad');

# A SIGBUS that is none of the kernel's about memory.
$outcome = meet_error('another SIGBUS', 2, $blocks + 8192 * ($buffer - 1));
is(in_the_view(), '0|clean|0', 'another SIGBUS: is not taken for a memory error');

$outcome = meet_error('a memory error', $BUS_MCEERR_AR, $blocks + 8192 * ($buffer - 1) + 4096);
like($outcome->{reason}, qr/was terminated by signal 7: .*, and may have overwritten cached pages before$/, 'a memory error: cold, as after any fault');
is(logged($node), $right, 'a memory error: contents are right');

# One buffer is not used, whatever comes.
sub is_retired
{
	my ($name) = @_;

	is(in_the_view(), '1|bad|8192', "$name: one buffer is not used");
	$node->safe_psql('postgres', q{
CREATE TABLE scratch AS SELECT i, repeat('x', 1500) FROM generate_series(1, 20000) i;
SELECT count(*) FROM scratch;
DROP TABLE scratch;
CHECKPOINT});
	is($node->safe_psql('postgres', $used), 0, "$name: nothing was read into it");
	is(logged($node), $right, "$name: contents are right");
	warm_pages($node);
	return;
}
is_retired('a memory error');
$offset = log_offset($node);
$node->restart;
is(start_outcome($node, $offset)->{start}, 'warm', 'a clean stop: warm');
is_retired('a clean stop');
kill_seen($node);
$offset = log_offset($node);
$node->start;
is(start_outcome($node, $offset)->{start}, 'warm', 'a kill: warm');
is_retired('a kill');

# A new pool forgets.
$node->stop;
unlink $pool or die;
$node->start;
is(in_the_view(), '0|clean|0', 'a new pool: all buffers are used');
warm_pages($node);
is(logged($node), $right, 'a new pool: contents are right');
$node->stop;

done_testing();
