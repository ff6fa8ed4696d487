
# Copyright (c) 2026, the persistent-cache developers

# After a clean stop somebody writes to a data file, or replaces it.  The start reads what was
# put there, as a server without the library does, and goes by the times of writing alone.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PCacheMoment;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main', standby => 1);
my $data = $node->data_dir;

# What a query of the file says, and not one of other pages.
sub rows
{
	my ($of) = @_;

	return $of->safe_psql('postgres', 'SELECT count(*), min(i), max(i) FROM repaired');
}

# Stop a node, do something to a file of the table once the second of the stop is over, and
# start it.  Returns how many pages were dropped for that, and the rest of the outcome.
sub done_to_file
{
	my ($of, $name, $code, %expect) = @_;
	my $file = $of->data_dir . '/' . $of->safe_psql('postgres', q{SELECT pg_relation_filepath('repaired')});
	my $offset = log_offset($of);
	my ($right, $outcome);

	$of->stop;
	sleep 2;
	$code->($file);
	$right = oracle($of, code => \&rows);
	$of->start;
	$outcome = start_outcome($of, $offset);
	is($outcome->{start}, $expect{start} // 'warm', "$name: " . ($expect{start} // 'warm'));
	is(rows($of), $right, "$name: what the file has");
	return ($outcome->{dropped}{'file changed'} // 0, $outcome);
}

# Zeros in place of a block, which is an empty page, and the block again.
my $block;

sub zero_block
{
	$block = read_bytes($_[0], 2 * BLCKSZ, BLCKSZ);
	write_bytes($_[0], 2 * BLCKSZ, "\0" x BLCKSZ);
	return;
}

sub put_block { return write_bytes($_[0], 2 * BLCKSZ, $block) }

sub fill
{
	my ($of) = @_;

	warm_pages($of);
	rows($of);
	return $of->safe_psql('postgres', q{SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('repaired')});
}

$node->start;
load_tables($node);
$node->safe_psql('postgres', q{
CREATE TABLE repaired (i int, filler text) WITH (autovacuum_enabled = off);
INSERT INTO repaired SELECT i, repeat('x', 200) FROM generate_series(1, 500) i;
CHECKPOINT});
$node->backup('b');

my $pages = fill($node);
my ($dropped, $outcome) = done_to_file($node, 'a block of zeros', \&zero_block);
cmp_ok($dropped, '>', 5, "a block of zeros: the pages of its file are dropped ($dropped)");
cmp_ok($dropped, '<=', $pages, '... and no others');
is(rows($node) =~ s/\|.*//r < 500, 1, '... and rows are missing');

fill($node);
($dropped) = done_to_file($node, 'the block again', \&put_block);
cmp_ok($dropped, '>', 5, "the block again: likewise ($dropped)");
is(rows($node), '500|1|500', '... and all rows are there');

# a file that is replaced has its old time, and its directory has not
fill($node);
($dropped) = done_to_file($node, 'a file from a backup', sub { system_or_bail('cp', '-p', $_[0], "$_[0].x"); rename "$_[0].x", $_[0] or die $! });
cmp_ok($dropped, '>', $pages, "a file from a backup: the pages of its database are dropped ($dropped)");

# what is no new content costs nothing
fill($node);
($dropped) = done_to_file($node, 'another mode', sub { chmod 0640, $_[0]; chmod 0600, $_[0] });
is($dropped, 0, 'another mode: nothing is dropped');
fill($node);
($dropped, $outcome) = done_to_file($node, 'a copy of all', sub {
	system_or_bail('cp', '-a', $data, "$data.copy");
	rename $data, "$data.old" or die $!;
	rename "$data.copy", $data or die $!;
});
is($dropped, 0, 'a copy of all that has the old times: nothing is dropped');

# A clock that was set back by an hour since: any file may have been written to later than it says.
fill($node);
($dropped, $outcome) = done_to_file($node, 'a clock that was set back', sub
{
	zero_block($_[0]);
	utime(time - 100, time - 100, $_[0]) or die $!;
	patch_superblock(pool_file($node), clock_offset => sub { $_[0] + 3600 * 1_000_000_000 });
}, start => 'cold');
is($outcome->{kept} // 0, 0, 'a clock that was set back: no page is kept');
cmp_ok($dropped, '>', $pages, '... because of its file');
fill($node);
done_to_file($node, 'and the block again', \&put_block);

# The forecast is the same.
fill($node);
my $file = "$data/" . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('repaired')});
$node->stop;
sleep 2;
is(verify_json($node)->{pages}{file_changed} // 0, 0, 'verify: no file was changed');
zero_block($file);
cmp_ok(verify_json($node)->{pages}{file_changed} // 0, '>', 5, '... and one was');
put_block($file);
$node->start;

# A tablespace leads elsewhere, where nothing is new but the place.
my $space = PostgreSQL::Test::Utils::tempdir() . '/space';
mkdir $space or die $!;
$node->safe_psql('postgres', qq{CREATE TABLESPACE space LOCATION '$space'});
$node->safe_psql('postgres', 'ALTER TABLE repaired SET TABLESPACE space');

# Another directory takes the place of one, whose copy with a block of zeros was there before.
sub exchange
{
	my ($directory) = @_;
	my @old = map { time - 100 } 1, 2;

	system_or_bail('cp', '-a', $directory, "$directory.good");
	for my $path (split /\n/, `find $directory.good -depth`)
	{
		write_bytes($path, 2 * BLCKSZ, "\0" x BLCKSZ) if -f $path && -s $path > 2 * BLCKSZ;
		utime(@old, $path) or die $!;
	}
	sleep 2;
	rename $directory, "$directory.bad" or die $!;
	rename "$directory.good", $directory or die $!;
	return;
}
fill($node);
($dropped) = done_to_file($node, 'the directory of a version in a tablespace', sub { exchange(glob "$space/PG_*") });
cmp_ok($dropped, '>', 5, "the directory of a version in a tablespace: its pages are dropped ($dropped)");
$node->safe_psql('postgres', 'ALTER TABLE repaired SET TABLESPACE pg_default');

# A start that is killed before pg_control says that the server runs has not written to the file.
$node->append_conf('postgresql.conf', 'pcache.mode = always');
$node->restart;
SKIP:
{
	my $why_not = why_no_start_kills();
	skip $why_not, 6 if $why_not;
	fill($node);
	($dropped) = done_to_file($node, 'a start that was killed', sub { kill_start($node, 'a start that was killed', 'fork_process'); sleep 2; zero_block($_[0]) });
	cmp_ok($dropped, '>', 5, "a start that was killed: the pages of the file are dropped ($dropped)");
	fill($node);
	done_to_file($node, 'and the block again', \&put_block);
}

# A standby, where pages are older than the redo point.
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
module_settings($standby);
$standby->start;
$node->safe_psql('postgres', 'CHECKPOINT');
$node->wait_for_catchup($standby, 'replay', written_lsn($node));
fill($standby);
($dropped) = done_to_file($standby, 'a standby', \&zero_block);
cmp_ok($dropped, '>', 5, "a standby: the pages of the file are dropped ($dropped)");
$standby->stop;
$node->stop;

done_testing();
