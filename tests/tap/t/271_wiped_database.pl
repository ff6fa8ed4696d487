
# Copyright (c) 2026, the persistent-cache developers

# Redo of CREATE DATABASE by file copy removes a directory that is there
# already.  With the cache on, it first writes and drops the buffers of that
# database; with the cache off, redo does what the unpatched server does.
#
# A database that is moved to a directory that an earlier recovery has made
# already shows the difference: recovery pauses before the record that would
# drop its buffers anyway.

use strict;
use warnings FATAL => 'all';

use File::Path qw(make_path);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', mode => undef,
	init => { has_archiving => 1, allows_streaming => 1 },
	conf => 'allow_in_place_tablespaces = on');
$primary->start;
$primary->safe_psql('postgres', $_)
  for 'CREATE EXTENSION pg_buffercache', q{CREATE TABLESPACE ts LOCATION ''}, 'CREATE DATABASE d';
$primary->safe_psql('d', 'CREATE TABLE t AS SELECT i, repeat(md5(i::text), 20) AS filler FROM generate_series(1, 1000) i');
my ($database, $tablespace) = split /\|/, $primary->safe_psql('postgres',
	q{SELECT (SELECT oid FROM pg_database WHERE datname = 'd'), (SELECT oid FROM pg_tablespace WHERE spcname = 'ts')});
$primary->backup('before');

my $start = $primary->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
$primary->safe_psql('d', 'UPDATE t SET filler = upper(filler)');
$primary->safe_psql('postgres', 'ALTER DATABASE d SET TABLESPACE ts');
my $end = $primary->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
my ($records) = run_command([ 'pg_waldump', '--path' => $primary->data_dir . '/pg_wal',
	'--start' => $start, '--end' => $end, '--rmgr' => 'Database' ]);
my ($target) = $records =~ m{lsn: ([0-9A-F]+/[0-9A-F]+),.*CREATE_FILE_COPY copy dir \d+/$database to $tablespace/$database};
ok(defined $target, 'the move is in WAL') or BAIL_OUT($records);
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
$primary->stop;

# How many buffers of that database are there after redo of that record?
sub buffers_after
{
	my ($name, $mode, $install) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	my $left;

	$node->init_from_backup($primary, 'before', has_restoring => 1, standby => 0);
	$node->append_conf('postgresql.conf', qq{
hot_standby = on
recovery_target_lsn = '$target'
recovery_target_action = pause
});
	add_pool($node, mode => $mode) if defined $mode;

	my ($version) = glob($node->data_dir . "/pg_tblspc/$tablespace/PG_*");
	make_path("$version/$database");
	append_to_file("$version/$database/left_behind", 'by an earlier recovery');

	my $code = sub {
		$node->start;
		$node->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'})
		  or die 'recovery does not pause';
		ok(!-e "$version/$database/left_behind", "$name: the directory was wiped");
		$left = $node->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache WHERE reldatabase = $database");
		$node->stop('immediate');
	};
	if (defined $install) { with_install($node, $install, $code) } else { $code->() }
	return $left;
}

SKIP:
{
	my $vanilla = vanilla_install();

	skip 'there is no unpatched server', 2 if !defined $vanilla;
	my $unpatched = buffers_after('unpatched', undef, $vanilla);
	cmp_ok($unpatched, '>', 50, 'unpatched: pages of the database stay in shared buffers');
	is(buffers_after('off', undef), $unpatched, 'mode off: as in the unpatched server');
}
is(buffers_after('always', 'always'), 0, 'mode always: none is left');
done_testing();
