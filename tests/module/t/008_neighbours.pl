
# Copyright (c) 2026, the persistent-cache developers

# Two clusters that name one directory, base backups beside their source, pg_rewind and
# pg_upgrade.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main', standby => 1, conf => "wal_log_hints = on\nwal_keep_size = 512MB\n");
my $copy = PostgreSQL::Test::Cluster->new('copy');
my ($offset, $outcome, $right, $log);
# a base backup has no unlogged tables, and WAL is ahead of a sequence
my $logged = sub { join "\n", grep { !/^(t_unlogged|t_seq|indexes)/ } split /\n/, $_[0] };

$node->start;
load_tables($node);
warm_restart($node, 'the source');

# A copy has the settings of its source, and finds its pool locked, for as long as the
# source runs; nothing becomes of the pool.
$node->backup('b');
$copy->init_from_backup($node, 'b');
my $generation = read_superblock(pool_file($node))->{generation};
$offset = log_offset($copy);
$copy->start;
$log = slurp_file($copy->logfile, $offset);
like($log, qr/WARNING:  persistent cache pool "[^"]*main\/pool" is locked by another process/, 'a copy beside its source: the pool is locked');
like($log, qr/The server starts without the persistent cache/, '... and it starts');
is($logged->(contents($copy)), $logged->(contents($node)), '... with the same contents');
is(read_superblock(pool_file($node))->{generation}, $generation, '... and the pool is as it was');
change_tables($copy);
$copy->stop;
change_tables($node);
warm_restart($node, 'the source, with a copy beside it');

# The source is down: the copy has its system identifier, and takes over the pool, cold.
warm_pages($node);
$node->stop;
$outcome = start_and_compare($copy, 'the copy with the pool of its source');
is($outcome->{start}, 'cold', '... cold');
like($outcome->{reason}, qr/^the pool was saved at checkpoint /, '... because its checkpoint is another one');
change_tables($copy);
warm_pages($copy);
$copy->stop;
cold_start($node, qr/^the pool was saved at checkpoint /, 'the source with the pool of its copy');
warm_pages($node);

# Another cluster that was made anew.
my $other = module_node('other', init => { force_initdb => 1, extra => ['--no-sync'] });
$other->append_conf('postgresql.conf', "pcache.directory = '" . pool_dir($node) . "'");
$node->stop;
$offset = log_offset($other);
$other->start;
is(start_outcome($other, $offset)->{start}, 'cold', 'another cluster takes over the pool, cold');
is(start_outcome($other, $offset)->{reason} =~ /^the pool belongs to the cluster with system identifier/ ? 1 : 0, 1, '... because it is of another cluster');
$other->stop;
cold_start($node, qr/^the pool belongs to the cluster with system identifier/, 'and back');
warm_restart($node, 'and back, and warm');

# A copy of a cluster that is down is the same cluster, until one of the two runs.
my $twin = PostgreSQL::Test::Cluster->new('twin');
warm_pages($node);
$node->stop;
mkdir $twin->basedir;
system_or_bail('cp', '-a', $node->data_dir, $twin->data_dir);
$twin->append_conf('postgresql.conf', 'port = ' . $twin->port . "\nunix_socket_directories = '" . $twin->host . "'");
is(start_and_compare($twin, 'a twin')->{start}, 'warm', 'a twin in the place of a cluster that is down: warm');
change_tables($twin);
$twin->stop;
cold_start($node, qr/^the pool was saved at checkpoint /, 'the cluster after its twin has run');

# With a directory of its own a copy is like any cluster.
$copy->append_conf('postgresql.conf', "pcache.directory = '" . pool_dir($copy) . "'");
cold_start($copy, qr/^the pool was created by this start$/, 'a copy with a directory of its own');
warm_restart($copy, 'a copy with a directory of its own', hints => 1);

# pg_rewind: both have gone on from the same point.
my $standby = PostgreSQL::Test::Cluster->new('standby');
$node->backup('s');
$standby->init_from_backup($node, 's', has_streaming => 1);
module_settings($standby, conf => "wal_log_hints = on\nwal_keep_size = 512MB\n");
$standby->start;
replay_until($node);
contents($standby);
$standby->promote;
change_tables($standby);
change_tables($node);
warm_pages($node);
$node->stop;
my $conf = slurp_file($node->data_dir . '/postgresql.conf');
system_or_bail('pg_rewind', '--no-sync', '--target-pgdata' => $node->data_dir, '--source-server' => $standby->connstr('postgres'));
unlink $node->data_dir . '/postgresql.conf';
append_to_file($node->data_dir . '/postgresql.conf', $conf);
$node->append_conf('postgresql.conf', "primary_conninfo = '" . $standby->connstr . "'");
append_to_file($node->data_dir . '/standby.signal', '');
replay_until($standby);
$outcome = start_and_compare($node, 'pg_rewind');
is($outcome->{start}, 'cold', 'pg_rewind: cold') or diag($outcome->{reason});
is($logged->(contents($node)), $logged->(contents($standby)), 'pg_rewind: it has what its primary has');
$node->stop;
$standby->stop;

# pg_upgrade to the same version, with the library in both clusters: its servers do not
# use a pool, and the new cluster starts cold.
my ($old, $new) = map { module_node($_) } 'old', 'new';
$old->start;
load_tables($old);
warm_pages($old);
$right = contents($old);
$old->stop;
$generation = read_superblock(pool_file($old))->{generation};
my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
{
	local %ENV = $old->_get_env();
	my $directory = $new->basedir . '/upgrade';

	mkdir $directory;
	chdir $directory;
	is(system_log('pg_upgrade', '-b' => $bindir, '-B' => $bindir, '-d' => $old->data_dir, '-D' => $new->data_dir,
			'-s' => $new->host, '-p' => $old->port, '-P' => $new->port, major() < 18 ? () : '--no-sync'),
		0, 'pg_upgrade');
	chdir $ENV{PCACHE_ROOT};
}
is(read_superblock(pool_file($old))->{generation}, $generation, 'pg_upgrade: the old pool is as it was');
ok(!-e pool_file($new), 'pg_upgrade: there is no new pool');
$offset = log_offset($new);
$new->start;
is(start_outcome($new, $offset)->{start}, 'cold', 'pg_upgrade: the new cluster starts cold');
is(contents($new) =~ s/^indexes.*//mr, $right =~ s/^indexes.*//mr, 'pg_upgrade: contents are right');
$new->safe_psql('postgres', 'CHECKPOINT');
warm_restart($new, 'pg_upgrade, and then');

$new->stop;
done_testing();
