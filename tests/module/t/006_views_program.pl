
# Copyright (c) 2026, the persistent-cache developers

# The views, pg_pcache_next_start() and the program say what the next start does.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main', conf => "shared_preload_libraries = ''\npcache.mode = off\n");
my $data = $node->data_dir;
my ($out, $err, $outcome, $offset);

sub pool_row { return $node->safe_psql('postgres', "SELECT $_[0] FROM pg_pcache_pool") }
sub next_start { return $node->safe_psql('postgres', "SELECT warm, reason, detail FROM pg_pcache_next_start('$_[0]')") }

# What pg_pcache verify says of a node that is down is what the start does.
sub foretold
{
	my ($name, $expected) = @_;
	my $verdict = verify_json($node);
	my $status = status_json($node);

	is($verdict->{rc}, $expected eq 'warm' ? 0 : 2, "$name: verify says $expected") or diag($verdict->{stderr});
	is($status->{rc}, 0, "$name: status");
	$outcome = start_and_compare($node, $name);
	is($outcome->{start}, $expected, "$name: $expected");
	if ($expected eq 'warm')
	{
		is($outcome->{kept}, $verdict->{pages}{kept}, "$name: verify foretold what is kept");
		is($outcome->{saved}, $verdict->{saved_pages}, "$name: verify knows what was saved");
		is(pool_row('kept'), $outcome->{kept}, "$name: the view has what was kept");
	}
	else
	{
		is($outcome->{reason}, $verdict->{detail}, "$name: verify and the server agree");
		is(pool_row('last_start_detail'), $outcome->{reason}, "$name: and the view");
	}
	is(pool_row('last_start'), $expected, "$name: pg_pcache_pool");
	return;
}

# ---------------------------------------------------------------- without the library
$node->start;
load_tables($node);
my ($rc) = $node->psql('postgres', 'CREATE EXTENSION pg_pcache', stderr => \$err);
is($rc, 0, 'the extension without the library');
like($node->psql('postgres', q{SELECT mode FROM pg_pcache_pool}, stdout => \$out, stderr => \$err) . $err . $out,
	qr/shared_preload_libraries|off/, '... says so');
if (!is_patched())
{
	is(() = $err =~ /pg_pcache does nothing unless it is in "shared_preload_libraries"/g, 1, '... with one warning');
	is($node->safe_psql('postgres', q{SELECT last_start_detail FROM pg_pcache_pool}),
		'pg_pcache is not in "shared_preload_libraries"', '... and in the view');
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_pcache_relations') > 5 ? 't' : 'f', 't', 'pg_pcache_relations needs no pool');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache'\npcache.mode = planned_restart");
$node->restart;

# ---------------------------------------------------------------- views
is(pool_row(q{mode, buffers, file_system, capacity, state, last_start, last_start_reason}),
	'planned_restart|3072|tmpfs|3072|dirty|cold|new', 'pg_pcache_pool after the first start');
is(pool_row('pool'), pool_file($node), '... and its place');
is(pool_row('power_loss'), 'cold', '... and what would be left if power were lost');
warm_pages($node);
is(
	$node->safe_psql('postgres', q{
SELECT count(*) FROM (
  SELECT relfilenode, reltablespace, reldatabase, relforknumber, count(*) FROM pg_buffercache WHERE relfilenode IS NOT NULL GROUP BY 1, 2, 3, 4
  EXCEPT SELECT relfilenode, reltablespace, reldatabase, relforknumber, buffers FROM pg_pcache_relations) d}),
	0, 'pg_pcache_relations counts as pg_buffercache does');
is($node->safe_psql('postgres', q{SET search_path = ''; SELECT relation FROM public.pg_pcache_relations WHERE relation::text ~ 't_heap$' AND relforknumber = 0}),
	'public.t_heap', '... and has the names of relations');
is(next_start('restart'), 't|warm|', 'next start after a restart: warm');
like(next_start('crash'), qr/^f\|dirty\|/, 'next start after a crash: cold');
$node->safe_psql('postgres', 'ALTER SYSTEM SET shared_buffers = 4000');
$node->reload;
$node->poll_query_until('postgres', q{SELECT pending_restart FROM pg_settings WHERE name = 'shared_buffers'});
like($node->safe_psql('postgres', q{SELECT hint FROM pg_pcache_next_start()}), qr/"shared_buffers" will change/, 'a setting that waits for the restart');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET shared_buffers');

$node->safe_psql('postgres', 'CREATE ROLE somebody; GRANT USAGE ON SCHEMA public TO somebody');
for my $view ('pg_pcache_pool', 'pg_pcache_relations', 'pg_pcache_next_start()')
{
	isnt($node->psql('postgres', "SET ROLE somebody; SELECT * FROM $view", stderr => \$err), 0, "$view is not for everybody");
}

# ---------------------------------------------------------------- the program
SKIP:
{
	my ($bindir) = run_command([ 'pg_config', '--bindir' ]);

	skip 'the program is not built', 1 if !-x "$bindir/pg_pcache";
	for my $how ('fast', 'smart')
	{
		$node->stop($how);
		foretold("stop $how", 'warm');
		change_tables($node);
	}
	is(status_json($node)->{state}, 'dirty', 'status of a server that runs');
	kill_all($node);
	foretold('kill -9', 'cold');
	$node->stop;
	append_to_file("$data/recovery.signal", '');
	is(verify_json($node)->{reason}, 'recovery_target', 'verify sees recovery.signal');
	unlink "$data/recovery.signal";
	system_or_bail('fallocate', '-p', '-o' => read_superblock(pool_file($node))->{blocks_offset}, '-l' => 1024 * 1024, pool_file($node));
	foretold('holes in the pool', 'warm');
	warm_pages($node);
	$node->stop;
	$node->append_conf('postgresql.conf', 'shared_buffers = 8MB');
	foretold('fewer buffers', 'warm');
	$node->append_conf('postgresql.conf', 'shared_buffers = 24MB');
	$node->restart;

	# where the settings are
	$node->stop;
	my ($mode, $directory) = ('planned_restart', pool_dir($node));
	$node->adjust_conf('postgresql.conf', "pcache.$_", undef) for 'mode', 'directory';
	$node->append_conf('postgresql.auto.conf', "pcache.mode = $mode\npcache.directory = '$directory'");
	is(verify_json($node)->{rc}, 0, 'settings in postgresql.auto.conf');
	unlink "$data/postgresql.auto.conf";
	mkdir "$data/conf.d";
	append_to_file("$data/conf.d/pcache.conf", "pcache.mode = $mode\npcache.directory = '$directory'");
	$node->append_conf('postgresql.conf', "include_dir = 'conf.d'");
	is(verify_json($node)->{rc}, 0, 'settings in conf.d');
	my ($check) = pcache($node, 'check');
	is($check, 0, 'check finds nothing wrong');
	foretold('settings in conf.d', 'warm');

	# The control group of the server, of whatever version: a directory plays it, in a
	# namespace where the directories above the pool belong to nobody who is trusted.
  SKIP:
	{
		my $groups = PostgreSQL::Test::Utils::tempdir();
		my @bwrap = ('bwrap', '--dev-bind', '/', '/', '--bind', $groups, '/sys/fs/cgroup');

		skip 'users cannot make namespaces here', 4 if system("@bwrap true 2>/dev/null") != 0;
		mkdir "$groups/memory";
		for my $mb (140, 1000)
		{
			my $warning = qr/warning: the control group may use 140\.00 MB of memory, and the pool takes \d+\.00 MB of it\n[^\n]*hint: [^\n]* to 15\d\.00 MB at least/;

			for my $file ("$groups/memory.max", "$groups/memory/memory.limit_in_bytes")
			{
				unlink $file;
				append_to_file($file, $mb * 1024 * 1024 . "\n");
			}
			($out, $err) = run_command([ @bwrap, "$bindir/pg_pcache", 'check', '--json', '-D', $data ]);
			like($out, qr/"memory_limit": @{[ $mb * 1024 * 1024 ]},/, "a limit of $mb MB");
			$mb == 140 ? like($err, $warning, '... is too little') : unlike($err, qr/warning/, '... will do');
		}
	}

	# a pool that cannot be used
	$node->stop;
	chmod 0770, $directory;
	my $verdict = verify_json($node);
	$node->start;
	isnt($verdict->{rc}, 0, 'a directory that will not do: verify says so');
	is(pool_row('last_start'), 'unavailable', '... and the view');
	like(pool_row('last_start_detail'), qr/invalid permissions/, '... and why');
	like(next_start('restart'), qr/^f/, '... and that the next start would not do better');
	isnt((pcache($node, 'check'))[0], 0, '... and check');
	chmod 0700, $directory;
	$node->restart;

	# without the library there is nobody to honor the settings
	if (!is_patched())
	{
		$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
		my @check = pcache($node, 'check');
		like("@check", qr/shared_preload_libraries/, 'check: shared_preload_libraries lacks the library');
		isnt($check[0], 0, '... which is wrong');
		$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache'");
	}

	# pg_pcache changes the pool of a cluster that is down
	$node->stop;
	is((pcache($node, 'rebuild'))[0], verify_json($node)->{rc}, 'rebuild');
	is((pcache($node, 'init', '--force'))[0], 0, 'init');
	foretold('init', 'cold');
	warm_restart($node, 'a pool that init has made');
	warm_pages($node);
	$node->stop;
	# the ledger of more than 32,768 slots takes the place of some pages
	$node->append_conf('postgresql.conf', 'shared_buffers = 264MB');
	foretold('a pool that becomes larger', 'warm');
	cmp_ok($outcome->{dropped}{'not fitting'} // 0, '>', 0, 'a pool that becomes larger: some pages do not fit');
	$node->stop;
	is((pcache($node, 'drop', '--force'))[0], 0, 'drop');
	ok(!-e pool_file($node), 'drop: the pool is gone');
	cold_start($node, qr/^the pool was created by this start$/, 'drop');
}

$node->stop;
done_testing();
