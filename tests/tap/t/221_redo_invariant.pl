
# Copyright (c) 2026, the persistent-cache developers

# A kept page has all changes up to the watermark.  If one that does not is
# forged, redo says so, goes on, and the contents are right.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main',
	mode => 'always',
	conf => q{
wal_level = replica
full_page_writes = off
autovacuum = off
bgwriter_lru_maxpages = 0
checkpoint_timeout = 1h});
my $pool = pool_file($node);
my $violation = qr/redo invariant violated/;

$node->start;
$node->safe_psql('postgres', q{
CREATE TABLE t (v int) WITH (fillfactor = 10, autovacuum_enabled = off);
INSERT INTO t VALUES (1);
CREATE TABLE later (v int)});
my ($file, $slot, @pages);
$file = $node->safe_psql('postgres', q{SELECT pg_relation_filenode('t')});
checkpoint_and_save(1);

# What is right is silent.
change(2);
my $log = crash_and_start();
unlike($log, $violation, 'nothing to report after an ordinary crash');
is(value(), 2, 'the change is there');
checkpoint_and_save(2);

# A free space map's upper pages are empty when they are copied to another
# tablespace, with their images logged, and initialized when they are read.
$node->safe_psql('postgres', q{
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE elsewhere LOCATION ''});
$node->safe_psql('postgres', q{
CREATE TABLE m (v text) WITH (autovacuum_enabled = off);
INSERT INTO m SELECT repeat('x', 1000) FROM generate_series(1, 100);
ALTER TABLE m SET TABLESPACE elsewhere;
INSERT INTO m SELECT repeat('y', 1000) FROM generate_series(1, 10)});
my $map = $node->safe_psql('postgres', q{SELECT pg_relation_filenode('m')});
wait_for_seals();
cmp_ok(
	scalar sealed_slots($pool,
		sub { $_[0]->{rel_number} == $map && $_[0]->{fork_number} == 1 && $_[0]->{page_lsn} == 0 }),
	'>', 0, 'a page without an LSN is sealed');
$log = crash_and_start();
unlike($log, $violation, 'nothing to report for images of empty pages');
is($node->safe_psql('postgres', 'SELECT count(*) FROM m'), 110, 'the table is complete');

# VACUUM of a hash index locks the first page of a bucket while it changes others:
# its records name that page, and leave it as it is.
$node->safe_psql('postgres', q{
CREATE TABLE h (k int, n int) WITH (autovacuum_enabled = off);
CREATE INDEX h_k ON h USING hash (k);
INSERT INTO h SELECT 1, i FROM generate_series(1, 3000) i});
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', 'DELETE FROM h WHERE n > 1500');
$node->safe_psql('postgres', 'VACUUM h');
wait_for_seals();
$log = crash_and_start();
unlike($log, $violation, 'nothing to report for pages that a record only names');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM h WHERE k = 1'), 1500, 'the hash index is complete');
checkpoint_and_save(2);

# The file has what the kept page has, and no more.
change(3);
kill_all($node);
forge(2);
$log = start();
like($log, qr/$violation.*The file has no later version/s, 'an older page, file not later: reported');
like($log, qr/redo invariant violated \d+ times?/, 'the sum is reported');
is(value(), 3, 'an older page, file not later: brought up to date');
checkpoint_and_save(3);

# The file has a change that the kept page lacks, and redo begins after it.
change(4);
checkpoint_and_save(4);
change(5);
kill_all($node);
forge(3);
$log = start();
like($log, qr/$violation.*replaced by the later version in its file/s, 'an older page, file later: reported');
is(value(), 5, 'an older page, file later: replaced, and brought up to date');

# A record with an image mends the page by itself.
$node->append_conf('postgresql.conf', 'full_page_writes = on');
$node->reload;
checkpoint_and_save(5);
change(6);
kill_all($node);
forge(4);
$log = start();
like($log, qr/$violation.*The record replaces the whole page/s, 'a record with an image: reported');
is(value(), 6, 'a record with an image: the change is there');

$node->stop;
done_testing();

sub value { return $node->safe_psql('postgres', 'SELECT v FROM t'); }

sub change
{
	my ($to) = @_;

	$node->safe_psql('postgres', "UPDATE t SET v = $to");
	is(value(), $to, "changed to $to");
	# a page with a later LSN, so that no LSN tells that kept pages lack a change
	$node->safe_psql('postgres', 'INSERT INTO later VALUES (1)');
	wait_for_seals();
	return;
}

# Remember the page as it is in its file now.
sub checkpoint_and_save
{
	my ($version) = @_;

	$node->safe_psql('postgres', 'CHECKPOINT');
	wait_for_seals();
	($slot) = find_slot();
	$pages[$version] = read_bytes($pool, page_offset($slot), BLCKSZ);
	return;
}

sub find_slot
{
	my @slots = sealed_slots($pool,
		sub { $_[0]->{rel_number} == $file && $_[0]->{fork_number} == 0 && $_[0]->{block_number} == 0 });

	is(scalar @slots, 1, 'the page is sealed');
	return @slots;
}

sub page_offset
{
	my ($slot) = @_;

	return read_superblock($pool)->{blocks_offset} + $slot * BLCKSZ;
}

# As if an older version of the page had been sealed.
sub forge
{
	my ($version) = @_;
	my ($high, $low) = unpack('LL', $pages[$version]);

	($slot) = find_slot();
	write_bytes($pool, page_offset($slot), $pages[$version]);
	write_descriptor($pool, $slot, page_lsn => ($high << 32) | $low);
	return;
}

sub start
{
	my $offset = log_offset($node);

	$node->start;
	is(start_outcome($node, $offset)->{start}, 'warm', 'warm start');
	return slurp_file($node->logfile, $offset);
}

sub crash_and_start
{
	kill_all($node);
	return start();
}
