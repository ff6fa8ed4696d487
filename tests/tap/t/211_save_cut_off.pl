
# Copyright (c) 2026, the persistent-cache developers

# A clean stop in mode always is cut off after a store to a descriptor: by the
# death of all processes, or by a power cut.  The stores are those of the
# program, one by one (tests/powercut/trace.c).  Whatever the next start keeps
# must be right.
#
# The pages are those of an unlogged table: all have the LSN 0 and are never
# sealed, so the descriptors of the last save that are still in their slots
# differ from the new ones in the block only, which is in the second half.

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::PowerCut;
use PostgreSQL::Test::Utils;
use Test::More;

use constant {
	KIND_DESCRIPTOR => 8,
	EVENT_STORE => 6,
	OTHERS => 4,        # power cuts anywhere, after each store to one descriptor
	PAGES => 400,
};

need_powercut();
plan skip_all => 'stores can be traced on x86-64 only' if `uname -m` !~ /^x86_64/;

my $seed = seed_random();

my $dir = pool_root() . '/main';

%ENV = (%ENV, powercut_environment($dir, $seed));

# What libpmem copies it shall copy by 8 bytes.
@ENV{qw(PMEM_AVX512F PMEM_AVX PMEM_NO_MOVNT PMEM_NO_GENERIC_MEMCPY)} = (0, 0, 1, 0);
my $node = new_node('main',
	mode => 'always',
	shared_buffers => '4MB',
	conf => powercut_conf() . qq{
persistent_cache_on_media_unknown = cold
autovacuum = off});

$node->start;
$node->safe_psql('postgres', 'CREATE UNLOGGED TABLE t (id int, filler text) WITH (fillfactor = 10)');
fill_table();
my $blocks = $node->safe_psql('postgres', q{SELECT pg_relation_size('t') / 8192});
cmp_ok($blocks, '>=', 4 * PAGES, 'the table is larger than what is read of it');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_buffercache');
my $expected = contents();
my $part = 0;
read_part();
$node->stop;
unlink "$dir.image";
$ENV{POWERCUT_TRACE} = 1;

my $store = 1;
$store++ while stop_at($store, 'one', 0);
cmp_ok($store, '>', 2, 'a descriptor is stored with several stores');
stop_at(int(rand(3 * PAGES)) + 1, 'any', 1) for 1 .. OTHERS;
done_testing();

# Stop, and cut that off after so many stores to one descriptor of the table,
# or to any descriptor.  Returns false if the stop came to its end.
sub stop_at
{
	my ($store, $which, $power) = @_;
	my $name = ($power ? 'power cut' : 'killed') . " after store $store to $which descriptor";
	my ($offset, $slot, $line, $outcome, $cut);

	# other pages than the last save had
	$offset = log_offset($node);
	$node->start;
	read_part();
	wait_for_seals();
	$slot = slot_with_other_page();
	wait_for_seals();    # of the catalog pages that this took
	$line = $which eq 'one' ? (DESCRIPTORS_OFFSET + $slot * DESCRIPTOR_SIZE) / DESCRIPTOR_SIZE : 0;
	arm($store, $line);
	system_log('pg_ctl', '--pgdata' => $node->data_dir, '--mode' => 'fast', 'stop');
	kill_all($node);
	$cut = slurp_file($node->logfile, $offset) !~ /database system is shut down$/m;
	note($name . ($cut ? '' : ': it did not come to that') . ", slot $slot");

	unlink "$dir.image.ctl";
	cut_power($dir, $seed++) if $power;
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm") or diag($outcome->{reason});

	# The sealer may have come to the store first, before the shutdown
	# checkpoint.  Then this was a crash, which empties an unlogged table.
	if (slurp_file($node->logfile, $offset) =~ /was not properly shut down/)
	{
		note("$name: by the sealer");
		fill_table();
	}
	is($outcome->{dropped}{'damaged descriptor'} // 0, 0, "$name: no descriptor is damaged");
	is($outcome->{dropped}{duplicate} // 0, 0, "$name: no page is there twice");
	is(contents(), $expected, "$name: contents");
	$node->stop;
	return $cut;
}

sub fill_table
{
	$node->safe_psql('postgres', q{
TRUNCATE t;
INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 2000) g});
	return;
}

# As the buffers have it, not the files.
sub contents
{
	return $node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id), sum(id) FROM t');
}

# Read a part of the table, not through a ring.
sub read_part
{
	my $from = PAGES * ($part++ % 4);

	$node->safe_psql('postgres', sprintf(
			q{SELECT count(filler) FROM t WHERE ctid >= '(%d,0)' AND ctid < '(%d,0)'}, $from, $from + PAGES));
	return;
}

# A slot whose descriptor was last stored for another page of the table, and
# would be valid but for its seq.
sub slot_with_other_page
{
	my $filenode = $node->safe_psql('postgres', q{SELECT pg_relation_filenode('t')});
	my %buffers = split /[|\n]/, $node->safe_psql('postgres', qq{
SELECT bufferid - 1, relblocknumber FROM pg_buffercache WHERE relfilenode = $filenode AND relforknumber = 0});

	for my $slot (sort { $a <=> $b } keys %buffers)
	{
		my ($seq, $lsn, $epoch, $relation, $block) = unpack('QQQx8Lx4L',
			read_bytes(pool_file($node), DESCRIPTORS_OFFSET + $slot * DESCRIPTOR_SIZE, DESCRIPTOR_SIZE));

		return $slot if $seq % 2 == 1 && $lsn == 0 && $epoch == 0 && $relation == $filenode &&
		  $block != $buffers{$slot};
	}
	die 'there is no such slot';
}

# Have the shim cut after that store, to that line of the pool (0: any), see
# tests/powercut/powercut.h.
sub arm
{
	my ($store, $line) = @_;

	open(my $fh, '+<:raw', "$dir.image.ctl") or die "$dir.image.ctl: $!";
	sysseek($fh, 4, 0);
	syswrite($fh, pack('LL', KIND_DESCRIPTOR, EVENT_STORE));
	sysseek($fh, 16, 0);
	syswrite($fh, pack('qLLQ', $store, 0, 0, $line));
	sysseek($fh, 0, 0);
	syswrite($fh, pack('L', 1));
	close $fh;
	return;
}
