
# Copyright (c) 2026, the persistent-cache developers

# A machine that has not as much memory as the pool would take, or is slow to give it, and a
# pool that changes while the server runs: the server starts and runs as one without the
# library would, and says what is wrong.

use strict;
use warnings FATAL => 'all';

use Fcntl qw(:flock);
use PCacheKilled qw(child);
use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main', conf => "restart_after_crash = on\n");
my $pool = pool_file($node);
my ($offset, $outcome);

# How much of the pool's file is allocated, in MB.
sub allocated { return (stat $pool)[12] / 2048 }

$node->start;
load_tables($node);
$node->stop;

# ---------------------------------------------------------------- the postmaster is gone
# Its worker does not go on to allocate the pool, which the next server waits for.
unlink $pool or die;
$node->append_conf('postgresql.conf', 'shared_buffers = 128MB');
on_machine({ MACHINE_ALLOCATE_MS => 50 }, sub { $node->start });
kill 'KILL', $node->{_pid};
{
	open my $file, '<', $pool or die "could not open $pool: $!";
	flock $file, LOCK_EX or die "could not lock $pool: $!";
	cmp_ok(allocated(), '<', 100, 'a postmaster is killed: its worker ends, and has allocated ' . allocated() . ' MB');
}
kill_all($node);
cold_start($node, qr/^the server was not shut down cleanly$/, 'a postmaster is killed');

# ---------------------------------------------------------------- the pool is cut off
# A server that begins anew looks how long the file is by then.
for my $mode (qw(planned_restart always))
{
	my ($sb, $psql, $pid);

	$node->append_conf('postgresql.conf', "pcache.mode = $mode");
	warm_restart($node, "$mode, before the pool is cut off");
	$sb = read_superblock($pool);
	$psql = $node->background_psql('postgres', on_error_stop => 0);
	$pid = $psql->query('SELECT pg_backend_pid()');
	$offset = log_offset($node);
	# who asks for a page that was cut off dies as well
	truncate $pool, $sb->{blocks_offset} + 200 * BLCKSZ or die;
	kill 'KILL', $pid;
	eval { $psql->quit };
	$node->wait_for_log(qr/persistent cache: (kept|starting cold).*database system is ready to accept connections/s, $offset);
	wait_until_back($node);
	is(-s $pool, $sb->{pool_size}, "$mode, cut off and a crash restart: the pool has its size again");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t_heap WHERE id > 0'), $node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SELECT count(*) FROM t_heap WHERE id > 0'), '... and the server works');
	warm_restart($node, "$mode, after that");
}

# ---------------------------------------------------------------- a log that is collected
# What the postmaster says before there is somebody to collect it is said there as well, once.
sub collected
{
	my ($file) = glob $node->data_dir . '/log/*';
	return defined $file ? slurp_file($file) : '';
}

sub start_collected
{
	my ($pattern, $name) = @_;
	my $lines;

	$node->stop;
	unlink glob $node->data_dir . '/log/*';
	$node->start;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if collected() =~ $pattern;
		select undef, undef, undef, 0.1;
	}
	# a worker that is started once more does not repeat it
	my $worker = child($node->{_pid}, 'persistent cache');
	kill 'TERM', $worker if $worker;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if !$worker || (child($node->{_pid}, 'persistent cache') // $worker) != $worker;
		select undef, undef, undef, 0.1;
	}
	$lines = () = collected() =~ /$pattern/g;
	is($lines, 1, "a log that is collected: $name");
	return;
}

$node->append_conf('postgresql.conf', "logging_collector = on\nlog_rotation_age = 0\npcache.mode = planned_restart");
start_collected(qr/LOG:  persistent cache: kept \d+ of \d+ saved pages/, 'warm');
chmod 0770, pool_dir($node);
start_collected(qr/WARNING:  persistent cache directory "[^"]*" has invalid permissions[^\n]*\n[^\n]*DETAIL:  The server starts without the persistent cache/, 'without the pool');
chmod 0700, pool_dir($node);
start_collected(qr/LOG:  persistent cache: starting cold: /, 'cold');
$node->append_conf('postgresql.conf', 'logging_collector = off');

$node->stop;
done_testing();
