
# Copyright (c) 2026, the persistent-cache developers

# Other libraries before and after pg_pcache in shared_preload_libraries: those that
# come with PostgreSQL, and what else the tested server has of a list.  Restarts are
# warm, and each library still does what it is there for.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# In an order in which they can be preloaded: library, settings, and a query that is true
# if the library works, once its extension is there.
my @LIBRARIES = (
	[ 'pg_stat_statements', '', 'SELECT count(*) > 0 FROM pg_stat_statements' ],
	[ 'auto_explain', "auto_explain.log_min_duration = '1h'", q{SELECT current_setting('auto_explain.log_timing') = 'on'} ],
	[ 'pg_prewarm', "pg_prewarm.autoprewarm_interval = '1h'", 'SELECT autoprewarm_dump_now() > 0' ],
	[ 'pg_stat_kcache', '', 'SELECT count(*) > 0 FROM pg_stat_kcache' ],
	[ 'pg_qualstats', '', 'SELECT count(*) >= 0 FROM pg_qualstats' ],
	[ 'pg_wait_sampling', '', 'SELECT count(*) >= 0 FROM pg_wait_sampling_profile' ],
	[ 'pgaudit', "pgaudit.log = 'ddl'", q{SELECT current_setting('pgaudit.log') = 'ddl'} ],
	[ 'pg_cron', "cron.database_name = 'postgres'", 'SELECT count(*) = 0 FROM cron.job' ],
	[ 'set_user', '', q{SELECT current_setting('set_user.block_alter_system') = 'on'} ],
	[ 'pglogical', "wal_level = logical\nmax_worker_processes = 20", 'SELECT count(*) = 0 FROM pglogical.node' ]);

my ($libdir) = run_command([ 'pg_config', '--pkglibdir' ]);
my ($sharedir) = run_command([ 'pg_config', '--sharedir' ]);

sub has { my ($name) = @_; return -e "$libdir/$name.so" }

my @found = grep { has($_->[0]) } @LIBRARIES;
my @names = map { $_->[0] } @found;
my $node = module_node('main', standby => 1, conf => join("\n", '', map { $_->[1] } @found) . "\n");
my ($valid, $offset);

cmp_ok(scalar @found, '>=', 3, "libraries: @names");

# The headers of later minor releases have macros that call functions which earlier ones
# lack, and a server does not start without a library that it preloads.
if (!is_patched())
{
	my @used = run_command([ 'nm', '-D', "$libdir/pg_pcache.so" ]);
	is_deeply([ grep { /palloc\w*_mul/ } map { split /\n/ } @used ],
		[], 'the library loads into earlier minor releases');
}

sub preload
{
	my (@libraries) = @_;

	$node->append_conf('postgresql.conf', "shared_preload_libraries = '" . join(', ', @libraries) . "'");
	return;
}

sub all_work
{
	my ($name) = @_;

	is($node->safe_psql('postgres', $_->[2]), 't', "$name: $_->[0] works") for @found;
	return;
}

preload(@names, 'pg_pcache');
$node->start;
load_tables($node);
for my $name (@names)
{
	$node->safe_psql('postgres', "CREATE EXTENSION $name") if -e "$sharedir/extension/$name.control" && $name ne 'pg_prewarm';
}
all_work('pg_pcache last');
warm_restart($node, 'pg_pcache last');

# in front of them, and in the middle
for my $order ([ 'pg_pcache', @names ], [ $names[0], 'pg_pcache', @names[ 1 .. $#names ] ])
{
	my $name = $order->[0] eq 'pg_pcache' ? 'pg_pcache first' : 'pg_pcache second';

	preload(@$order);
	change_tables($node);
	warm_restart($node, $name);
	all_work($name);
}

# One that was loaded after pg_pcache and does not call the hooks of others.
SKIP:
{
	skip 'no plprofiler', 1 if !has('plprofiler');
	for my $order ([ 'plprofiler', 'pg_pcache' ], [ 'pg_pcache', 'plprofiler' ])
	{
		preload(@$order);
		change_tables($node);
		warm_restart($node, join ', then ', @$order);
	}
	preload('pg_pcache', @names);
}

# One that does not call the hook of others at the start, and one that calls none.
preload('pg_pcache', $ENV{PCACHE_STRANGER});
{
	local $ENV{STRANGER} = 'startup';
	change_tables($node);
	warm_restart($node, 'pg_pcache, then one that has its own start');
	$ENV{STRANGER} = 'startup request';
	$offset = log_offset($node);
	$node->restart;
	$node->wait_for_log(qr/WARNING:  another library in "shared_preload_libraries" does not call the hooks of pg_pcache/, $offset);
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS pg_pcache');
	like($node->safe_psql('postgres', 'SELECT last_start_detail FROM pg_pcache_pool'), qr/does not call the hooks of pg_pcache/, 'pg_pcache, then one that calls no hook: the view says so');
	like($node->safe_psql('postgres', q{SELECT detail FROM pg_pcache_next_start()}), qr/does not call the hooks/, '... and of the next start');
}
preload('pg_pcache', @names);
$node->restart;

# autoprewarm beside the cache displaces nothing that is kept.  When the pool was lost, it
# brings the pages back.
{
	my $prewarmed = qr/autoprewarm successfully prewarmed (\d+) of (\d+) previously-loaded blocks/;

	$valid = warm_pages($node);
	$node->safe_psql('postgres', q{SELECT pg_stat_reset_shared('io')}) if major() >= 16;
	$offset = log_offset($node);
	$node->restart;
	$node->wait_for_log($prewarmed, $offset);
	is($node->safe_psql('postgres', q{SELECT coalesce(sum(reads), 0)::bigint FROM pg_stat_io WHERE object = 'relation' AND backend_type = 'background worker'}),
		0, 'autoprewarm, a clean stop: it reads nothing') if major() >= 16;
	is_warm($node, $offset, $valid, 'autoprewarm, a clean stop');
	$valid = warm_pages($node);
	$node->stop;
	unlink pool_file($node) or die;
	$offset = log_offset($node);
	$node->start;
	$node->wait_for_log($prewarmed, $offset);
	is(start_outcome($node, $offset)->{start}, 'cold', 'autoprewarm, the pool is lost: cold');
	cmp_ok(valid_buffers($node), '>=', 0.9 * $valid, 'autoprewarm, the pool is lost: the pages are back');
	$valid = warm_pages($node);
	warm_restart($node, 'autoprewarm, restarted');
}

# From a directory that is not in dynamic_library_path: by its path, or by the patched server.
# One of the paths is longer than the name of a worker's library may be before PostgreSQL 17.
for my $directory (pool_root(), pool_root() . '/' . 'long' x 25)
{
	my $copy = "$directory/pg_pcache.so";

	system_or_bail('mkdir', '-p', $directory);
	system_or_bail('cp', "$libdir/pg_pcache.so", $copy);
	preload(is_patched() ? '' : $copy);
	$node->append_conf('postgresql.conf', "dynamic_library_path = '/nonexistent'");
	$offset = log_offset($node);
	$node->restart;
	$node->wait_for_log(qr/persistent cache: the pool has/, $offset);
	$node->append_conf('postgresql.conf', q{dynamic_library_path = '$libdir'});
	preload('pg_pcache', @names);
	$node->restart;
}

# Pages that pg_buffercache evicts are not saved.
SKIP:
{
	skip 'pg_buffercache evicts nothing before 17', 1 if major() < 17;
	warm_pages($node);
	$node->safe_psql('postgres', q{SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t_heap')});
	$valid = valid_buffers($node);
	stop_and_save($node, $valid, 'after pages were evicted');
	start_and_compare($node, 'after pages were evicted');
}

# The same after a process has died: all libraries initialize shared memory once more.
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->restart;
kill_backend($node);
all_work('after a crash restart');
warm_restart($node, 'after a crash restart');

# One that was there first and looks at faults: what the CPU has raised comes to it as if
# pg_pcache was not there.
preload($ENV{PCACHE_STRANGER}, 'pg_pcache');
$node->safe_psql('postgres', "CREATE FUNCTION stranger_fault() RETURNS void AS '$ENV{PCACHE_STRANGER}' LANGUAGE C");
$node->stop;
{
	local $ENV{STRANGER} = 'faults';
	$node->start;
}
$offset = log_offset($node);
isnt(query_broken_server($node, 'SELECT stranger_fault()'), 0, 'a fault: the session ends');
$node->wait_for_log(qr/persistent cache: starting cold/, $offset);
wait_until_back($node);
like(slurp_file($node->logfile, $offset), qr/^stranger: signal 11 of the CPU at 0x1238$/m, 'a fault: a handler that was there first learns all of it');
like(start_outcome($node, $offset)->{reason}, qr/was terminated by signal 11: /, 'a fault: cold');

$node->stop;
done_testing();
