# Copyright (c) 2026, the persistent-cache developers

# wal_sync_method = open_direct, kill -9 and power cuts: an external client logs
# each commit that was acknowledged, and after each crash all of them are there.
# At a power cut, of WAL only that survives which was written with O_DSYNC or
# synced, and a random part of the other sectors.
#
#   PCACHE_WAL_ROUNDS   how many crashes of each kind (8)
#   PCACHE_WAL_SEED     seed of the run (random; printed)

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::Wal;
use Cwd qw(realpath);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant SECTOR => 512;

my $rounds = $ENV{PCACHE_WAL_ROUNDS} || 8;
my $seed = $ENV{PCACHE_WAL_SEED} || int(rand(2**31));
my $shim = `pg_config --pkglibdir` =~ s/\n//r . '/wal_media.so';
my ($node, $images);
my ($acked, $kept, $dropped) = (0, 0, 0);

plan skip_all => "there is no $shim" if !-e $shim;
note "PCACHE_WAL_SEED=$seed";
srand $seed;

make_node();
for my $round (1 .. 2 * $rounds)
{
	my $cut = $round > $rounds;
	my $filler = (1, 24, 328, 3000)[ int rand 4 ];
	my $method = (qw(open_direct open_direct fdatasync open_sync))[ int rand 4 ];
	my @runs = start_clients($node, clients => 3, filler => $filler, switch => 0.005);
	my $name = "round $round (" . ($cut ? 'power' : 'kill') . ", filler $filler)";

	# also while processes disagree about the method: back from another one
	select undef, undef, undef, 0.1 + rand 0.3;
	if ($method ne 'open_direct')
	{
		switch_method($node, $method);
		select undef, undef, undef, rand 0.2;
		switch_method($node, 'open_direct');
	}
	select undef, undef, undef, rand 0.3;
	kill_all($node);
	my ($ids, $lsn) = acknowledged(@runs);
	cut_power() if $cut;
	$acked += @$ids;

	start($cut || $round == $rounds);
	is(missing($node, $ids), 0, "$name: none of " . @$ids . ' acknowledged commits is lost');
	cmp_ok(lsn_number($node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()')), '>', $lsn,
		"$name: WAL goes on behind the last flush that was promised");
	$node->safe_psql('postgres', 'DELETE FROM acked; CHECKPOINT') if $round % 4 == 0;
}
note "$acked commits acknowledged; of the sectors that were not synced, $kept survived and $dropped did not";
cmp_ok($acked, '>', 20 * $rounds, 'commits were acknowledged');
$node->stop;
done_testing();

# With the shim, which knows what is on media; before that, all is brought there.
sub start
{
	my ($shimmed) = @_;

	if ($shimmed)
	{
		local $ENV{LD_PRELOAD} = $shim;
		for my $file (segments())
		{
			my $image = "$images/" . (stat $file)[1];

			system_or_bail('cp', $file, $image) if !-e $image;
		}
		$node->start;
	}
	else
	{
		$node->start;
	}
	return;
}

# A cluster on recycled segments.
sub make_node
{
	my $wal;

	$node = new_wal_node('main', disk => 1, method => 'open_direct', segsize => 1,
		conf => "wal_buffers = 64kB\nmax_wal_size = 4MB\nmin_wal_size = 4MB\nwal_level = minimal\nmax_wal_senders = 0\ncheckpoint_timeout = 1h");
	$wal = realpath($node->data_dir . '/pg_wal');
	$images = $node->basedir . '/images';
	mkdir $images or die "could not create $images: $!";
	$ENV{WAL_MEDIA_WAL} = $wal;
	$ENV{WAL_MEDIA_IMAGES} = $images;
	start(0);
	fill_recycled_segments($node);
	return;
}

sub segments
{
	return glob $node->data_dir . '/pg_wal/[0-9A-F]*';
}

# Of sectors that are not on media some survive, or none.
sub cut_power
{
	my $chance = (0, 0, 0.5, 0.9)[ int rand 4 ];
	my ($survived, $lost);

	($survived, $lost) = lose_unsynced($images, SECTOR, $chance, segments());
	$kept += $survived;
	$dropped += $lost;
	return;
}
