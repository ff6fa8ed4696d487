# Copyright (c) 2026, the persistent-cache developers

# wal_sync_method = pmem and power cuts: of WAL only that survives which was
# drained or synced, and a random part of the other cache lines.  No commit
# that was acknowledged is lost.  A server that does not drain is caught.
#
#   PCACHE_WAL_ROUNDS   how many power cuts (8)
#   PCACHE_WAL_SEED     seed of the run (random; printed)

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::Wal;
use Cwd qw(realpath);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant LINE => 64;

my $rounds = $ENV{PCACHE_WAL_ROUNDS} || 8;
my $seed = $ENV{PCACHE_WAL_SEED} || int(rand(2**31));
my $shim = `pg_config --pkglibdir` =~ s/\n//r . '/wal_media.so';

plan skip_all => "there is no $shim" if !-e $shim;
note "PCACHE_WAL_SEED=$seed";
srand $seed;
local $ENV{PMEM_IS_PMEM_FORCE} = '1';

my ($node, $images);

make_node('main');
my ($acked, $kept, $dropped) = (0, 0, 0);
for my $round (1 .. $rounds)
{
	my $method = (qw(pmem pmem pmem fdatasync))[ int rand 4 ];
	my $filler = (1, 24, 328, 3000)[ int rand 4 ];
	my @runs = start_clients($node, clients => 3, filler => $filler, switch => 0.005);

	# also while processes disagree about the method
	select undef, undef, undef, 0.1 + rand 0.3;
	switch_method($node, $method) if rand() < 0.5;
	select undef, undef, undef, 0.1 + rand 0.3;
	my ($ids, $lsn) = cut_power(@runs);

	$acked += @$ids;
	start();
	is(missing($node, $ids), 0, "round $round (filler $filler): none of " . @$ids . ' acknowledged commits is lost');
	cmp_ok(lsn_number($node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()')), '>', $lsn,
		"round $round: WAL goes on behind the last flush that was promised");
	$node->safe_psql('postgres', 'DELETE FROM acked; CHECKPOINT') if $round % 4 == 0;
	switch_method($node, 'pmem');
}
note "$acked commits acknowledged; of the cache lines that were not drained, $kept survived and $dropped did not";
cmp_ok($acked, '>', 10 * $rounds, 'commits were acknowledged');
stop();

# The same, without drains.
make_node('undrained');
stop();
{
	local $ENV{WAL_MEDIA_DRAIN} = 'no';

	start();
	my @runs = start_clients($node, clients => 3, filler => 24);
	select undef, undef, undef, 1;
	my ($ids) = cut_power(@runs);

	cmp_ok(scalar @$ids, '>', 0, 'without drains: commits are acknowledged');
	local $ENV{LD_PRELOAD};
	delete $ENV{LD_PRELOAD};
	my $started = $node->start(fail_ok => 1);
	ok(!$started || missing($node, $ids) > 0, 'without drains: they are lost, and that is seen');
	$node->stop('immediate', fail_ok => 1) if $started;
}
done_testing();

sub start
{
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{WAL_MEDIA_DELAY} = (0, 500, 5000)[ int rand 3 ];
	$node->start;
	return;
}

sub stop
{
	$node->stop;
	return;
}

# A cluster on recycled segments, all of which is on media.
sub make_node
{
	my ($name) = @_;
	my $wal;

	$node = new_wal_node($name, segsize => 1,
		conf => "max_wal_size = 4MB\nmin_wal_size = 4MB\nwal_level = minimal\nmax_wal_senders = 0\ncheckpoint_timeout = 1h");
	$wal = realpath($node->data_dir . '/pg_wal');
	$images = "$wal.images";
	mkdir $images or die "could not create $images: $!";
	for my $file (segments())
	{
		PostgreSQL::Test::Utils::system_or_bail('cp', $file, "$images/" . (stat $file)[1]);
	}
	$ENV{WAL_MEDIA_WAL} = $wal;
	$ENV{WAL_MEDIA_IMAGES} = $images;
	start();
	fill_recycled_segments($node);
	return;
}

sub segments
{
	return glob $node->data_dir . '/pg_wal/[0-9A-F]*';
}

# Kill the server; of lines that are not on media some survive, or none, or
# all.  Returns what acknowledged() does.
sub cut_power
{
	my @runs = @_;
	my $chance = (0, 0, 0.5, 0.9)[ int rand 4 ];
	my ($survived, $lost);
	my @result;

	kill_all($node);
	@result = acknowledged(@runs);
	($survived, $lost) = lose_unsynced($images, LINE, $chance, segments());
	$kept += $survived;
	$dropped += $lost;
	return @result;
}
