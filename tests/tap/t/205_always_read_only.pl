
# Copyright (c) 2026, the persistent-cache developers

# Mode always: the WAL watermark.  A server that only reads has one, from the
# WAL that is on disk when it starts; and wherever in a page or segment WAL
# ends, what was flushed last counts.

use strict;
use warnings FATAL => 'all';

use List::Util qw(min);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', mode => 'always',
	init => { allows_streaming => 1, extra => [ '--wal-segsize' => 1 ] },
	conf => "wal_keep_size = 64MB\nbgwriter_delay = 10s");
my ($expected, $valid);

$node->start;
$node->backup('b');
load_data($node);
$expected = checksums($node, tables => [LOGGED]);

# --- nothing but reads between a start and a crash
for my $case (
	[ 'warm clean start', sub { $node->restart } ],
	[ 'cold clean start', sub { $node->stop; unlink pool_file($node); $node->start } ],
	[ 'cold start after a crash', sub { kill_all($node); unlink pool_file($node); $node->start } ],
	[ 'start after off and a clean stop', sub {
		$node->stop;
		set_mode($node, 'off');
		$node->start;
		$node->stop;
		set_mode($node, 'always');
		$node->start } ],
	[ 'start after planned_restart and a clean stop', sub {
		$node->stop;
		set_mode($node, 'planned_restart');
		$node->start;
		$node->safe_psql('postgres', 'SELECT pg_switch_wal(); CHECKPOINT');
		$node->stop;
		set_mode($node, 'always');
		$node->start } ],
	[ 'segment switch before a clean stop', sub {
		$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
		$node->stop;
		unlink pool_file($node);
		$node->start } ])
{
	my ($name, $prepare) = @$case;

	$prepare->();
	read_and_crash($name);
}
# and again: nothing was done but recovery
read_and_crash('second crash in a row');

# --- right after a checkpoint, a segment switch, or both
for my $case (
	[ 'checkpoint', 'CHECKPOINT' ],
	[ 'segment switch', 'SELECT pg_switch_wal()' ],
	[ 'segment switch and checkpoint', 'SELECT pg_switch_wal(); CHECKPOINT' ],
	[ 'several segment switches',
		'SELECT pg_switch_wal(); CHECKPOINT; SELECT pg_switch_wal(); CHECKPOINT; SELECT pg_switch_wal()' ])
{
	my ($name, $sql) = @$case;

	warm_up($node);
	$valid = permanent_buffers($node);
	wait_for_seals();
	$node->safe_psql('postgres', $_) for split /; /, $sql;
	kill_all($node);
	warm_after_crash($node, $valid, $name);
	is(checksums($node, tables => [LOGGED]), $expected, "$name: contents are right");
}

# --- WAL that ends anywhere around a page boundary: what is on media is what
# was flushed, with a witness that only zeros separate from it
my (%in_page, @wrong);
for my $step (0 .. 63)
{
	my $sql = q{SELECT pg_current_wal_insert_lsn() - '0/0'};
	my $position = $node->safe_psql('postgres', $sql) % 8192;
	# records of messages have a length of 53 bytes and the text
	my $length = (8192 - 256 + 8 * $step - $position - 56) % 8192;

	$length += 8192 if $length < 64;
	$node->safe_psql('postgres', "SELECT pg_logical_emit_message(false, '', repeat('x', $length), true)");
	push @wrong, check_watermark();
}
cmp_ok(scalar(grep { $_ > 0 && $_ < 24 + 64 } keys %in_page), '>=', 5,
	'WAL has ended at the beginning of a page');
is(join("\n", @wrong), '', 'the watermark is where WAL was flushed to');

# The same for checkpoints that end there, then crashes.
for my $before (8, 40, 72, 104, 136, 168)
{
	my $position = $node->safe_psql('postgres', q{SELECT pg_current_wal_insert_lsn() - '0/0'}) % 8192;
	my $length = (8192 - 120 - $before - $position - 56) % 8192;
	my $name = "checkpoint $before bytes before a page's end";

	$length += 8192 if $length < 64;
	warm_up($node);
	$valid = permanent_buffers($node);
	wait_for_seals();
	$node->safe_psql('postgres', "SELECT pg_logical_emit_message(false, '', repeat('x', $length), true)");
	$node->safe_psql('postgres', 'CHECKPOINT');
	is(join("\n", check_watermark()), '', "$name: the watermark is right");
	kill_all($node);
	warm_after_crash($node, $valid, $name);
}
is(checksums($node, tables => [LOGGED]), $expected, 'after that: contents are right');

# --- a standby whose primary is down
my $standby = new_standby('standby', $node, 'b', mode => 'always');
$standby->start;
$node->wait_for_replay_catchup($standby);
$node->stop;
# so that minRecoveryPoint is where replay is
$standby->stop;
unlink pool_file($standby);
$standby->start;
for my $name ('standby, cold clean start', 'standby, second crash in a row')
{
	$valid = seal_and_kill($standby);
	warm_after_crash($standby, $valid, $name);
	is(checksums($standby, tables => [LOGGED]), $expected, "$name: contents are right");
}
$standby->stop;
done_testing();

sub read_and_crash
{
	my ($name) = @_;

	$valid = seal_and_kill($node);
	warm_after_crash($node, $valid, "$name, reads, crash");
	is(checksums($node, tables => [LOGGED]), $expected, "$name, reads, crash: contents are right");
	return;
}

# Compare the newest watermark with what the server says, and its distance
# from its witness with the WAL.  Returns what is wrong.
sub check_watermark
{
	my $flushed = $node->safe_psql('postgres', q{SELECT pg_current_wal_flush_lsn() - '0/0'});
	my ($best) = sort { $b->[0] <=> $a->[0] } watermarks(pool_file($node));
	my ($mark, $witness, undef, $timeline) = @$best;
	my $segment = 1024 * 1024;
	my $number = int(($witness - 1) / $segment);
	my $wal = sprintf '%s/pg_wal/%08X%08X%08X', $node->data_dir, $timeline,
	  int($number / 4096), $number % 4096;
	my $offset = ($witness - 1) % $segment;
	my $last = min($segment, $offset + 1 + $mark - $witness);

	$in_page{ $mark % 8192 } = 1;
	return "WAL is flushed to $flushed, the watermark is $mark" if $mark != $flushed;
	return "the witness $witness is beyond the watermark $mark" if $witness > $mark;
	return "the witness $witness of $mark is followed by something"
	  if read_bytes($wal, $offset, $last - $offset) !~ /\A[^\0]\0*\z/;
	return ();
}
