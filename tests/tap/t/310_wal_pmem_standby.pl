# Copyright (c) 2026, the persistent-cache developers

# wal_sync_method = pmem on a primary and on its standbys: streaming, base
# backups, pg_receivewal, archiving, logical decoding, promotion, pg_rewind.

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::Wal;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

local $ENV{PMEM_IS_PMEM_FORCE} = '1';

my $fill = q{INSERT INTO t SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 3000) g};
my $primary = new_wal_node('primary',
	init => { allows_streaming => 'logical', has_archiving => 1 },
	segsize => 1,
	conf => "max_wal_size = 8MB\nmin_wal_size = 2MB\nwal_keep_size = 256MB\nwal_log_hints = on");
my ($standby, $cascaded, $received, $expected);

$primary->start;
$primary->safe_psql('postgres', 'CREATE TABLE t (id int, filler text)');
$primary->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('logical', 'test_decoding')});
$received = start_receivewal($primary);
$primary->safe_psql('postgres', "$fill; CHECKPOINT");

# pg_basebackup in both ways; a standby, and a standby of that.
backups_are_whole($primary);
$standby = standby_of_wal('standby', $primary, 'stream');
$standby->start;
$standby->backup('cascade');
$cascaded = standby_of_wal('cascaded', $standby, 'cascade', $standby);
$cascaded->start;
$primary->safe_psql('postgres', $fill) for 1 .. 3;
standbys_follow('streaming', $primary, $standby, $cascaded);
like(slurp_file('/proc/' . $standby->safe_psql('postgres',
		q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walreceiver'}) . '/maps'),
	qr{rw-s .*/wal_standby/[0-9A-F]{24}\n|rw-s .*/wal_\w*standby\w*/[0-9A-F]{24}\n},
	'the walreceiver has its segment mapped');

# Standbys that crash, or switch, and go on.
kill_all($standby);
$primary->safe_psql('postgres', $fill);
$standby->start;
$primary->safe_psql('postgres', $fill);
standbys_follow('standby crashed', $primary, $standby, $cascaded);
for my $method (qw(fdatasync open_datasync pmem))
{
	switch_method($standby, $method);
	$primary->safe_psql('postgres', $fill);
	standbys_follow("standby switched to $method", $primary, $standby, $cascaded);
	$standby->stop('immediate');
	$standby->start;
	standbys_follow("standby with $method crashed", $primary, $standby, $cascaded);
}

decoding_is_whole($primary);

# What pg_receivewal and the archive got is what pg_wal has.
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
received_is_archived($primary);

# A restore from the archive alone.
{
	my $restored = PostgreSQL::Test::Cluster->new('restored');

	$restored->init_from_backup($primary, 'fetch', has_restoring => 1, standby => 0);
	wal_on_tmpfs($restored);
	$restored->append_conf('postgresql.conf', "archive_mode = off\nrecovery_target_timeline = 'latest'");
	$expected = $primary->safe_psql('postgres', 'SELECT count(*) FROM t');
	$restored->start;
	$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	is($restored->safe_psql('postgres', 'SELECT count(*) FROM t'), $expected, 'restored from the archive');
	$restored->safe_psql('postgres', $fill);
	$restored->stop('immediate');
	$restored->start;
	is($restored->safe_psql('postgres', 'SELECT count(*) FROM t'), $expected + 3000, '... and its own WAL after a crash');
	$restored->stop;
}

# Promotion, and pg_rewind of the old primary.
$received->kill_kill;
$received->finish;
standbys_follow('before promotion', $primary, $standby, $cascaded);
$cascaded->stop;
$standby->promote;
$standby->safe_psql('postgres', $fill);
$primary->safe_psql('postgres', 'DELETE FROM t WHERE id < 100');
$primary->stop('fast');
$standby->safe_psql('postgres', 'CHECKPOINT');
kill_all($standby);
$standby->start;
$expected = $standby->safe_psql('postgres', 'SELECT count(*) FROM t');
command_ok(
	[
		'pg_rewind', '--no-sync',
		'--target-pgdata' => $primary->data_dir,
		'--source-server' => $standby->connstr('postgres'),
		'--config-file' => $primary->data_dir . '/postgresql.conf'
	],
	'pg_rewind');
# its configuration is the source's now
$primary->append_conf('postgresql.conf', 'port = ' . $primary->port);
$primary->enable_streaming($standby);
$primary->set_standby_mode;
$primary->start;
$standby->safe_psql('postgres', $fill);
$standby->wait_for_catchup($primary, 'replay', $standby->lsn('flush'));
is($primary->safe_psql('postgres', 'SELECT count(*) FROM t'), $expected + 3000, 'a rewound primary follows');
$primary->stop;
$standby->stop;
done_testing();

sub standby_of_wal
{
	my ($name, $from, $backup, $upstream) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($from, $backup, has_streaming => 1);
	$node->append_conf('postgresql.conf', "archive_mode = off");
	$node->enable_streaming($upstream) if defined $upstream;
	wal_on_tmpfs($node);
	return $node;
}
