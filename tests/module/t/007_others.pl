
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache where it does not belong, and how much memory the server takes.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main');
my ($err, $offset, $outcome);

# Kilobytes of shared memory that a process has touched.
sub shared_kb
{
	my ($pid) = @_;
	return slurp_file("/proc/$pid/status") =~ /^RssShmem:\s+(\d+) kB/m ? $1 : die;
}

$node->start;
load_tables($node);
# ---------------------------------------------------------------- where it does not belong
is($node->psql('postgres', "LOAD 'pg_pcache'", stderr => \$err), 0, 'LOAD of what is preloaded');
is($err, '', '... has nothing to say');
if (!is_patched())
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	$node->restart;
	for my $where ("LOAD 'pg_pcache'", 'session_preload_libraries')
	{
		my $sql = $where =~ /^LOAD/ ? "$where; $where; SELECT 1" : 'SELECT 1';

		local $ENV{PGOPTIONS} = $where =~ /^LOAD/ ? '' : '-c session_preload_libraries=pg_pcache';
		$offset = log_offset($node);
		is($node->psql('postgres', $sql, stderr => \$err), 0, "$where works");
		is(() = ($err . slurp_file($node->logfile, $offset)) =~ /WARNING:  pg_pcache does nothing unless it is in "shared_preload_libraries"/g,
			$err =~ /WARNING/ ? 2 : 1, "$where: one warning");
	}
}

# A minor release that nobody has tried: only a server can tell its version, so that is
# for unit tests.  Modes and sizes that make no sense:
for my $setting ('pcache.mode = sometimes', 'pcache.size = -5', 'pcache.nonsense = 1')
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache'\n$setting");
	$offset = log_offset($node);
	$node->start(fail_ok => 1) if !$node->{_pid};
	$node->restart(fail_ok => 1) if $node->{_pid};
	like(slurp_file($node->logfile, $offset), qr/WARNING:  invalid (value|configuration parameter name)|FATAL:  invalid|outside the valid range/, "$setting: the log says it");
	$node->adjust_conf('postgresql.conf', $setting =~ s/ =.*//r, undef);
	$node->append_conf('postgresql.conf', "pcache.mode = planned_restart") if $setting =~ /mode/;
}
$node->start if !$node->{_pid};
warm_restart($node, 'after such settings');

# A second copy of the library, as one of a stock server that is preloaded by its path where
# the patched server preloads its own.
my $copy = pool_root() . '/pg_pcache.so';
my ($libdir) = run_command([ 'pg_config', '--pkglibdir' ]);
system_or_bail('cp', "$libdir/pg_pcache.so", $copy);
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache, $copy'");
$offset = log_offset($node);
warm_restart($node, 'two copies');
like(slurp_file($node->logfile, $offset), qr/WARNING:  the library pg_pcache is preloaded twice, from two files, and only the first one is used/, 'two copies: the log says so');

# ---------------------------------------------------------------- memory
# Buffers for far more than is used: neither they nor the server's own are allocated.
$node->append_conf('postgresql.conf', "shared_buffers = 128MB\npcache.size = 128MB\nhuge_pages = off\nshared_preload_libraries = 'pg_pcache'");
$offset = log_offset($node);
$node->restart;
like(slurp_file($node->logfile, $offset), qr/made persistent cache pool "[^"]*" larger/, 'the pool becomes larger');
$node->wait_for_log(qr/persistent cache: allocated pool/, $offset);
warm_pages($node);
my $before = shared_kb($node->{_pid});
cmp_ok($before, '<', 64 * 1024, "the postmaster has touched $before kB");
SKIP:
{
	skip 'pg_shmem_allocations_numa is not in this version', 1 if major() < 18;
	my $psql = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $psql->query('SELECT pg_backend_pid()');

	$psql->query('SELECT sum(size) FROM pg_shmem_allocations_numa');
	note('of a session with pg_shmem_allocations_numa: ' . shared_kb($pid) . " kB, $psql->{stderr}");
	# the pool is mapped twice, and the rest is small
	cmp_ok(shared_kb($pid), '<=', 2 * 140 * 1024 + 64 * 1024, 'pg_shmem_allocations_numa touches no more than the pool');
	$psql->quit;
}
# smaps tells what of the server's own segment is allocated
my ($segment) = grep { /^Size:\s+(\d+)/m && $1 > 100 * 1024 && /\/dev\/zero|SYSV/ } split /(?=^[0-9a-f]+-[0-9a-f]+ )/m, slurp_file("/proc/$node->{_pid}/smaps");
my $rss = defined $segment && $segment =~ /^Rss:\s+(\d+)/m ? $1 : 0;
cmp_ok($rss, '<', 32 * 1024, "the server's own reservation takes $rss kB");
my @core = grep { /VmFlags:.*\bdd\b/ } split /(?=^[0-9a-f]+-[0-9a-f]+ )/m, slurp_file("/proc/$node->{_pid}/smaps");
cmp_ok(scalar @core, '>=', 1, 'the reservation is kept out of core dumps');
$node->safe_psql('postgres', 'CREATE TABLE big AS SELECT i, repeat(md5(i::text), 30) FROM generate_series(1, 20000) i');
warm_restart($node, 'many buffers');

# What of the server's own segment the log says is in huge pages is mapped so.
sub huge_rest
{
	my ($from) = @_;
	my $maps;

	no warnings 'portable';    # addresses have more than 32 bits
	$node->wait_for_log(qr/MB of them in huge pages, and \d+ MB more are reserved/, $from);
	my ($told) = slurp_file($node->logfile, $from) =~ /the rest of shared memory has \d+ MB, (\d+) MB of them in huge pages/;
	my $mapped = 0;
	$maps = slurp_file("/proc/$node->{_pid}/maps");
	$mapped += hex($2) - hex($1) while $maps =~ /^([0-9a-f]+)-([0-9a-f]+) .*\/(?:memfd:pg_pcache|anon_hugepage) /mg;
	return ($told, $mapped >> 20);
}

# huge pages, where there are some, and where there are none
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
for my $huge ('off', 'try', 'on')
{
	$node->append_conf('postgresql.conf', "huge_pages = $huge");
	$offset = log_offset($node);
	$node->restart;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "huge_pages = $huge: warm");
	is(() = $outcome->{log} =~ /"huge_pages" is turned off for the rest of shared memory/g, $huge eq 'off' ? 0 : 1, "huge_pages = $huge: the log says what becomes of it");
	my ($told, $mapped) = huge_rest($offset);
	is($told, $mapped, "huge_pages = $huge: $mapped MB of the segment are in huge pages, and the log says so");
	is($mapped, 0, "huge_pages = $huge: none") if $huge eq 'off';
	is($node->safe_psql('postgres', 'SHOW huge_pages'), $huge, "huge_pages = $huge: the setting is as it was set");
	# the last thing that the worker says of it, and not an answer to the reload
	$node->wait_for_log(qr/"huge_pages" is "on", but shared buffers are not all in huge pages/, $offset)
	  if $huge eq 'on' && slurp_file($node->logfile, $offset) =~ /on tmpfs, not all of them in huge pages/;
	$offset = log_offset($node);
	$node->reload;
	$node->wait_for_log(qr/received SIGHUP/, $offset);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_settings WHERE pending_restart'), 0, "huge_pages = $huge: nothing waits for a restart");
	unlike(slurp_file($node->logfile, $offset), qr/huge_pages/, "huge_pages = $huge: a reload does not complain");
	# the segment is made and arranged anew
	is_deeply([ huge_rest(kill_backend($node)) ], [ $told, $mapped ], "huge_pages = $huge: the same after a crash restart");
}

# A kernel before Linux 5.16 with huge pages, and memory of the server that nobody has used
# yet: nothing is moved there that was not there.
$node->append_conf('postgresql.conf', "huge_pages = try\nmin_dynamic_shared_memory = 256MB");
$node->stop;
$offset = log_offset($node);
on_machine({ MACHINE_HUGE_PAGES => 1 }, sub { $node->start });
is(start_outcome($node, $offset)->{start}, 'warm', 'huge pages, old kernel: warm');
my ($old_told, $old_mapped) = huge_rest($offset);
cmp_ok($old_told, '>=', 256, "huge pages, old kernel: $old_told MB of the segment are moved");
is($old_mapped, $old_told, '... and mapped');
is($node->safe_psql('postgres', 'SELECT count(*) FROM big'), 20000, '... and the server works');
my ($copied, $old_log) = (0, slurp_file($node->logfile, $offset));
$copied += $1 while $old_log =~ /^machine: (\d+) MB in huge pages$/mg;
cmp_ok($copied, '<', 64, "... of which $copied MB were copied");
is_deeply([ huge_rest(kill_backend($node)) ], [ $old_told, $old_mapped ], '... also after a crash restart');
$node->stop;
$offset = log_offset($node);
on_machine({ MACHINE_HUGE_PAGES => 1, MACHINE_SWAPS => 1 }, sub { $node->start(fail_ok => 1) });
is($node->psql('postgres', 'SELECT count(*) FROM big'), 0, 'a segment that is swapped out while it is moved: the server works');
unlike(slurp_file($node->logfile, $offset), qr/was terminated by signal|PANIC/, '... and nobody has died');
$node->append_conf('postgresql.conf', 'min_dynamic_shared_memory = 0');
$node->restart;
SKIP:
{
	skip 'io_uring with direct I/O is not in this version', 1 if major() < 18;
	skip 'built without io_uring', 1 if $node->safe_psql('postgres', q{SELECT enumvals::text FROM pg_settings WHERE name = 'io_method'}) !~ /io_uring/;
	$node->append_conf('postgresql.conf', "huge_pages = off\nio_method = io_uring\ndebug_io_direct = data");
	$offset = log_offset($node);
	# a kernel may have no io_uring, or not for us
	$node->restart(fail_ok => 1);
	like(slurp_file($node->logfile, $offset), qr/WARNING:  a persistent cache cannot be used with "io_method" = "io_uring"/, 'io_uring with direct I/O');
}

$node->stop if $node->{_pid};
done_testing();
