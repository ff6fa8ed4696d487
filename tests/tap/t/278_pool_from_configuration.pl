
# Copyright (c) 2026, the persistent-cache developers

# Configuration is enough: with an absolute persistent_cache_directory on tmpfs
# the server creates its pool, cold, and the next start is warm.  It creates none
# on an ordinary file system.

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = pool_root() . '/top';
mkdir $top, 0700 or die $!;
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 1);
my $data = $node->data_dir;
$node->append_conf('postgresql.conf', "shared_buffers = 16MB\npersistent_cache_directory = '$top/some/where'");
$node->start;
load_data($node, rows => 2000);
my $expected = checksums($node);
$node->stop;
ok(!-e "$top/some", 'mode off: nothing is created');
set_mode($node, 'planned_restart');

# How the next start is judged, and how it then is.
sub created
{
	my ($cluster, $place, $blocks, $name) = @_;
	my $verdict = verify_json($cluster);
	my ($offset, $log);

	is("$verdict->{rc} $verdict->{reason}", '2 new', "$name: pg_pcache verify says cold");
	is($verdict->{detail}, 'there is no pool yet, and the server will create it', "$name: pg_pcache verify says why");
	ok(!-e "$place/pool", "$name: pg_pcache verify creates nothing");
	$offset = log_offset($cluster);
	$cluster->start;
	is_cold($cluster, $offset, qr/^the pool was created by this start$/, $name);
	$log = slurp_file($cluster->logfile, $offset);
	like($log, qr/LOG:  created persistent cache pool "\Q$place\E\/pool", for $blocks blocks/, "$name: a LOG line tells");
	is((stat "$place/pool")[2] & 07777, 0600, "$name: mode of the pool");
	is((stat $place)[2] & 07777, 0700, "$name: mode of its directory");
	ok(!-e $cluster->data_dir . '/pg_pcache', "$name: no directory of a pool in the data directory");
	return $log;
}

created($node, "$top/some/where", 2048, 'a new cluster');
restart_warm($node, 'a new cluster, restarted');
is(checksums($node), $expected, 'a new cluster, restarted: contents are right');

# A size of its own, and another place; the old pool stays.
$node->stop;
$node->append_conf('postgresql.conf', "persistent_cache_directory = '$top/else'\npersistent_cache_size = 32MB");
like(created($node, "$top/else", 4096, 'another place'),
	qr/LOG:  the pool in "\Q$top\E\/some\/where", which the cluster was last used with, is left behind\n.*HINT:  Remove it if no other cluster uses it\./,
	'another place: what is left behind is named');
ok(-e "$top/some/where/pool", 'another place: it is left behind');
restart_warm($node, 'another place, restarted');

# Lost with its file system.
$node->stop;
remove_tree("$top/else");
my $offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the pool was lost with its tmpfs file system, and was created again$/, 'lost');
is(status_json($node)->{capacity}, 4096, 'lost: its size is as configured');

# A base backup brings the configuration along, and starts with a pool of its own.
$node->backup('b');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($node, 'b', has_streaming => 1);
$replica->append_conf('postgresql.conf', "persistent_cache_directory = '$top/replica'");
created($replica, "$top/replica", 4096, 'a replica');
$node->wait_for_replay_catchup($replica);
is(checksums($replica, tables => [LOGGED]), checksums($node, tables => [LOGGED]), 'a replica: contents are right');
restart_warm($replica, 'a replica, restarted');
$replica->stop;

# With the place of its primary it does not start: that pool is in use.
$replica->append_conf('postgresql.conf', "persistent_cache_directory = '$top/else'");
start_fails($replica, qr/FATAL:  persistent cache pool ".*" is locked by another process/, "a replica in its primary's place");
$node->stop;

# With the default of the setting, the record leads to the pool, as nothing else
# does.  A copy of the data directory has the record, too: it must not take the
# pool from its owner.
my $owner = new_node('owner', setting => 0);
$owner->start;
load_data($owner, rows => 500);
restart_warm($owner, 'by record');
my $copy = PostgreSQL::Test::Cluster->new('copy');
run_command([ 'cp', '-a', $owner->data_dir, $copy->data_dir ]);
unlink $copy->data_dir . '/postmaster.pid';
$copy->append_conf('postgresql.conf', 'port = ' . $copy->port);
my $inode = (stat pool_file($owner))[1];
start_fails($copy, qr/FATAL:  persistent cache pool "\Q${\pool_file($owner)}\E" is locked by another process/, 'a copy with the record of a running server');
is((stat pool_file($owner))[1], $inode, 'a copy with the record of a running server: the pool is the same file');
restart_warm($owner, 'by record, after somebody else tried');
$owner->stop;

# What a missing mount leaves is on an ordinary file system.
my $disk = PostgreSQL::Test::Utils::tempdir();
chmod 0700, $disk;
for my $place ($disk, "$disk/not/there")
{
	my $name = $place eq $disk ? 'on disk' : 'below a directory on disk';
	my $message = qr/there is no persistent cache pool in directory "\Q$place\E", and "\Q$disk\E" is on an ordinary file system/;

	$node->append_conf('postgresql.conf', "persistent_cache_directory = '$place'");
	my ($rc, undef, $err) = pcache($node, 'verify');
	is($rc, 1, "$name: pg_pcache verify says that the server will not start");
	like($err, qr/$message\n.*hint: .*Is the file system for the pool mounted\?/, "$name: pg_pcache verify says why");
	start_fails($node, qr/FATAL:  $message\n.*HINT:  Is the file system for the pool mounted\?  On an ordinary file system, only "pg_pcache init" creates a pool\./, $name);
	is_deeply([ glob "$disk/*" ], [], "$name: nothing was created");
}

# There pg_pcache init is asked for, which goes by the setting.
$node->append_conf('postgresql.conf', "persistent_cache_directory = '$disk/pool'");
is((pcache($node, 'init', '--force'))[0], 0, 'pg_pcache init: by the setting');
ok(-e "$disk/pool/pool", 'pg_pcache init: the pool is there');
is(status_json($node)->{capacity}, 4096, 'pg_pcache init: the size is as configured');
my ($rc, undef, $err) = pcache($node, 'init', '--force', '--directory' => "$top/other");
is($rc, 1, 'pg_pcache init: refuses a place where the server does not look');
like($err, qr/error: "persistent_cache_directory" is "\Q$disk\E\/pool", so the server would not use a pool in "\Q$top\E\/other"/,
	'pg_pcache init: and says why');
$node->start;
restart_warm($node, 'pg_pcache init');
is(checksums($node), $expected, 'pg_pcache init: contents are right');
$node->stop;

# Inside the data directory, by a name that does not show it.
symlink $data, "$disk/link" or die $!;
$node->append_conf('postgresql.conf', "persistent_cache_directory = '$disk/link/base/there'");
start_fails($node, qr/FATAL:  persistent cache directory "\Q$disk\E\/link\/base\/there" is inside the data directory/, 'inside the data directory');
ok(!-e "$data/base/there", 'inside the data directory: nothing was created');

# A directory that others may write to is not trusted with a new pool, either.
mkdir "$top/open", 0700 or die $!;
chmod 0777, "$top/open";
$node->append_conf('postgresql.conf', "persistent_cache_directory = '$top/open/pool'");
start_fails($node, qr/FATAL:  .*"\Q$top\E\/open"/, 'a directory of everybody');
ok(!-e "$top/open/pool", 'a directory of everybody: nothing was created');
done_testing();
