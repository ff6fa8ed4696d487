# Copyright (c) 2026, the persistent-cache developers

# wal_sync_method = open_direct on a primary and on its standby: streaming, base
# backups, pg_receivewal, archiving, logical decoding, promotion.  Whoever reads
# WAL through the page cache finds what was written past it.

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::Wal;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $shim = `pg_config --pkglibdir` =~ s/\n//r . '/wal_direct.so';
my $fill = q{INSERT INTO t SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 3000) g};
my ($primary, $standby, $received);

plan skip_all => "there is no $shim" if !-e $shim;

# Few WAL buffers, so that walsenders have to read segments.
$primary = new_wal_node('primary', disk => 1, method => 'open_direct', segsize => 1,
	init => { allows_streaming => 'logical', has_archiving => 1 },
	conf => "wal_buffers = 64kB\nmax_wal_size = 8MB\nmin_wal_size = 2MB\nwal_keep_size = 256MB");
$primary->start;
$primary->safe_psql('postgres', 'CREATE TABLE t (id int, filler text)');
$primary->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('logical', 'test_decoding')});
$received = start_receivewal($primary);
$primary->safe_psql('postgres', "$fill; CHECKPOINT");

backups_are_whole($primary);

$standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'stream', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'archive_mode = off');
{
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{WAL_DIRECT_LOG} = $standby->basedir . '/writes';
	$standby->start;
}
$primary->safe_psql('postgres', $fill) for 1 .. 3;
# commits while the standby reads the same pages
$primary->safe_psql('postgres', join(';', map { "INSERT INTO t VALUES (-$_)" } 1 .. 300));
standbys_follow('streaming', $primary, $standby);

# The walreceiver writes through the page cache, and syncs.
{
	my @writes = map { [split] } grep { m{^write .*/pg_wal/[0-9A-F]{24} } } split /\n/, slurp_file($standby->basedir . '/writes');

	cmp_ok(scalar @writes, '>', 0, 'the walreceiver writes');
	is(scalar(grep { $_->[5] != 0 } @writes), 0, '... without O_DIRECT and O_DSYNC');
	ok($standby->poll_query_until('postgres',
			q{SELECT sum(fsyncs) > 0 FROM pg_stat_io WHERE backend_type = 'walreceiver' AND object = 'wal' AND context = 'normal'}),
		'... and syncs');
}

kill_all($standby);
$primary->safe_psql('postgres', $fill);
$standby->start;
standbys_follow('standby crashed', $primary, $standby);
for my $method (qw(fdatasync open_direct))
{
	switch_method($standby, $method);
	$primary->safe_psql('postgres', $fill);
	standbys_follow("standby switched to $method", $primary, $standby);
	kill_all($standby);
	$standby->start;
	standbys_follow("standby with $method crashed", $primary, $standby);
}

decoding_is_whole($primary);

# What pg_receivewal and the archive got is the same.
received_is_archived($primary);

# Promotion: segments that the walreceiver has written are written on directly.
$received->kill_kill;
$received->finish;
standbys_follow('before promotion', $primary, $standby);
$primary->stop('fast');
$standby->promote;
my $rows = $standby->safe_psql('postgres', 'SELECT count(*) FROM t');
$standby->safe_psql('postgres', $fill);
kill_all($standby);
$standby->start;
is($standby->safe_psql('postgres', 'SELECT count(*) FROM t'), $rows + 3000, 'promoted, and crashed');
$standby->stop;
done_testing();
