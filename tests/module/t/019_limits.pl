
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

# ---------------------------------------------------------------- a limit of memory
# A control group, or a machine, that has not all that the pool would take: the server starts,
# and its buffers take memory when they are used.  So it is with what MACHINE_FILES has.
my $files = PostgreSQL::Test::Utils::tempdir();

sub group_has
{
	my ($limit, $used, $cached) = @_;

	machine_file($files, '/proc/self/cgroup', "0::/unit\n");
	machine_file($files, '/sys/fs/cgroup/unit/memory.max', $limit << 20);
	machine_file($files, '/sys/fs/cgroup/unit/memory.current', $used << 20);
	machine_file($files, '/sys/fs/cgroup/unit/memory.stat', "inactive_file 0\nactive_file " . ($cached << 20) . "\n");
	return;
}

my $short = qr/WARNING:  not all of persistent cache pool "[^"]*" is allocated: the pool lacks \d+ MB, and the control group may use 100 MB more/;
my @there = ({ MACHINE_FILES => $files }, sub { $node->start });

sub start_there
{
	my ($pattern, $name) = @_;

	$offset = log_offset($node);
	on_machine(@there);
	$node->wait_for_log($pattern, $offset);
	$node->wait_for_log(qr/persistent cache: the pool has/, $offset);
	pass($name);
	return start_outcome($node, $offset);
}

unlink $pool or die;
$node->append_conf('postgresql.conf', 'shared_buffers = 128MB');
group_has(200, 100, 0);
start_there($short, 'a limit below the pool: the log says so');
cmp_ok(allocated(), '<', 40, '... and the pool has ' . allocated() . ' MB');
warm_pages($node);
cmp_ok(allocated(), '<', 60, '... and ' . allocated() . ' MB when pages were read');
machine_file($files, "/proc/$node->{_pid}/cgroup", "0::/unit\n");
group_has(2000, 1900, 0);
my @check = on_machine({ MACHINE_FILES => $files }, sub { pcache($node, 'check') });
like("@check", qr/not all of the pool will be allocated: the pool lacks \d+ MB, and the control group may use 100 MB more/, '... and pg_pcache check');

# the next starts are warm, and the one after a crash gives back what was used
$node->stop;
group_has(200, 100, 0);
$outcome = start_there($short, 'the same, and a restart');
is($outcome->{start}, 'warm', '... is warm');
$offset = kill_backend($node);
$node->wait_for_log(qr/persistent cache: the pool has/, $offset);
cmp_ok(allocated(), '<', 20, '... and after a crash restart the pool has ' . allocated() . ' MB');

# what is charged already is not asked for again, and the page cache counts as free
$node->stop;
group_has(400, 300, 200);
start_there(qr/persistent cache: allocated pool/, 'the page cache is enough: all is allocated');
cmp_ok(allocated(), '>=', 128, '... and the pool has ' . allocated() . ' MB');
$node->stop;
group_has(200, 150, 0);
$outcome = start_there(qr/all of them in huge pages|not all of them/, 'a pool that is charged already');
unlike($outcome->{log}, qr/WARNING/, '... costs no warning');
$node->stop;

# one that was cut off gets its size, and what it lacks is not allocated
truncate $pool, read_superblock($pool)->{blocks_offset} + 200 * BLCKSZ or die;
group_has(200, 150, 0);
start_there($short =~ s/100 MB more/50 MB more/r, 'cut off, and a limit');
cmp_ok(-s $pool, '>=', 128 << 20, '... and the pool has its size');
cmp_ok(allocated(), '<', 60, '... and ' . allocated() . ' MB are allocated');
$node->stop;

# the same by what the machine has left
unlink $pool or die;
group_has(4000, 0, 0);
machine_file($files, '/proc/meminfo', "MemTotal: 1000000 kB\nMemAvailable: 200000 kB\n");
start_there(qr/WARNING:  not all of persistent cache pool "[^"]*" is allocated: the pool lacks \d+ MB, and the machine has 195 MB left/, 'a machine without memory: the log says so');
cmp_ok(allocated(), '<', 40, '... and the pool has ' . allocated() . ' MB');
$node->stop;

# ---------------------------------------------------------------- vm.overcommit_memory
# All of the segment has to be allowed, and not only the buffers.
$offset = log_offset($node);
$node->start;
$node->wait_for_log(qr/persistent cache: allocated pool/, $offset);
warm_pages($node);
$node->stop;
machine_file($files, '/proc/sys/vm/overcommit_memory', "2\n");
for my $mb (400, 200)
{
	my $left = 1024 * $mb;
	my ($rc, $out);

	machine_file($files, '/proc/meminfo', "MemAvailable: 9000000 kB\nCommitLimit: 1000000 kB\nCommitted_AS: @{[ 1000000 - $left ]} kB\n");
	($rc, $out) = on_machine({ MACHINE_FILES => $files }, sub { pcache($node, 'verify', '--json') });
	if ($mb == 400)
	{
		is($rc, 0, "vm.overcommit_memory, $mb MB are left: verify foretells it");
		$outcome = start_there(qr/persistent cache: kept/, '... and the server starts');
		$node->stop;
	}
	else
	{
		isnt($rc, 0, "vm.overcommit_memory, $mb MB are left: verify foretells it");
		on_machine({ MACHINE_FILES => $files }, sub { start_without($node, qr/"vm.overcommit_memory" is 2, and 200 MB can be reserved: too little for 260 MB of shared memory/, '... and the server') });
		$node->stop;
	}
}

# ---------------------------------------------------------------- the postmaster is gone
# Its worker does not go on to allocate the pool, which the next server waits for.
unlink $pool or die;
on_machine({ MACHINE_ALLOCATE_MS => 500 }, sub { $node->start });
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
