
# Copyright (c) 2026, the persistent-cache developers

# Mode always: runs without the pool make the start after a crash cold; another
# number of buffers keeps what fits; damage to the watermark or to the WAL is
# found.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', mode => 'always', size => '48MB');
my $pool = pool_file($node);
my $moved_on = qr/^the pool knows of checkpoints /;
my $without = qr/^the cluster was run without the pool$/;
my $change = 'UPDATE t_heap SET grp = grp + 5 WHERE id <= 100';
my ($expected, $valid, $offset, $outcome);

$node->start;
load_data($node);

# --- the feature off, an unpatched server
for my $case (
	[ 'off, a clean stop', undef, $change, 'stop' ],
	[ 'off, a crash', undef, $change, 'kill' ],
	[ 'off, a crash without any change', undef, 'SELECT 1', 'kill' ],
	[ 'unpatched server, a clean stop', vanilla_install(), $change, 'stop' ],
	[ 'unpatched server, a crash', vanilla_install(), $change, 'kill' ])
{
	my ($name, $install, $sql, $how) = @$case;
	my @why = defined $install ? ('checkpoint', $moved_on) : ('incarnation', $without);

  SKIP:
	{
		skip 'PCACHE_VANILLA does not name an unpatched installation', 1
		  if $name =~ /unpatched/ && !defined $install;
		($expected, $valid) = change_and_crash($node);
		set_mode($node, defined $install ? undef : 'off');
		my $run = sub {
			$node->start;
			$node->safe_psql('postgres', $sql);
			$expected = checksums($node, tables => [LOGGED]);
			$how eq 'stop' ? $node->stop : kill_all($node);
		};
		defined $install ? with_install($node, $install, $run) : $run->();
		set_mode($node, 'always');
		cold_then_warm($node, $expected, @why, $name);
	}
}

# --- a single-user run, which does the recovery
($expected, $valid) = change_and_crash($node);
$offset = log_offset($node);
run_log([ 'postgres', '--single', '-D' => $node->data_dir, 'postgres' ],
	'<' => \"$change\n", '>' => \my $out, '2>' => \my $err);
is($?, 0, 'single-user run: it works with the cache configured');
unlike($err . $out, qr/persistent cache:/, 'single-user run: without the pool');
cold_after_crash($node, 'incarnation', $without, 'single-user run');
my $with = checksums($node, tables => [LOGGED]);
isnt($with, $expected, 'single-user run: it did something');
$node->stop;
is(checksums_without_pool($node, tables => [LOGGED]), $with, 'single-user run: contents are right');
set_mode($node, 'always');
$node->start;

# --- changes between the two modes
($expected, $valid) = change_and_crash($node);
set_mode($node, 'planned_restart');
warm_after_crash($node, $valid, 'always crashed, then planned_restart');
contents_right($node, $expected, 'always crashed, then planned_restart');
($expected, $valid) = change_and_crash($node);
cold_after_crash($node, 'dirty', qr/^the server was not shut down cleanly$/, 'planned_restart crashed, then planned_restart');
contents_right($node, $expected, 'planned_restart crashed, then planned_restart');
($expected, $valid) = change_and_crash($node);
set_mode($node, 'always');
cold_then_warm($node, $expected, 'dirty', qr/^the server was not shut down cleanly$/, 'planned_restart crashed, then always');

# --- another number of buffers
for my $size (20, 48, 32)
{
	($expected, $valid) = change_and_crash($node);
	$node->adjust_conf('postgresql.conf', 'shared_buffers', "${size}MB");
	my $fit = grep { $_ < $size * 128 } sealed_slots($pool, sub { $_[0]{flags} & 1 });
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "shared_buffers = $size MB: warm start");
	is($outcome->{kept}, $fit, "shared_buffers = $size MB: what fits is kept");
	cmp_ok($fit, '>=', ($size > 20 ? 1 : 0.5) * $valid, "shared_buffers = $size MB: and that is most of it");
	contents_right($node, $expected, "shared_buffers = $size MB");
}

# --- the pool is lost, its superblock damaged
($expected, $valid) = change_and_crash($node);
unlink $pool;
cold_then_warm($node, $expected, 'new', qr/^the pool was lost with its tmpfs file system, and was created again$/, 'pool lost');
($expected, $valid) = change_and_crash($node);
damage_superblock($pool, 'capacity', 0);
warm_after_crash($node, $valid, 'first superblock damaged');
contents_right($node, $expected, 'first superblock damaged');

# --- the watermark is damaged
for my $victim ('older', 'newest')
{
	my $name = "$victim watermark damaged";

	($expected, $valid) = change_and_crash($node);
	my @slots = watermarks($pool);
	my $newest = $slots[0][0] >= $slots[1][0] ? 0 : 1;
	write_bytes($pool, WATERMARK_OFFSET + 32 * ($victim eq 'newest' ? $newest : 1 - $newest) + 28, "\x5A\x5B");
	# what was flushed last may be lost with it
	warm_after_crash($node, $valid, $name, ratio => $victim eq 'older' ? 1 : 0.5);
	contents_right($node, $expected, $name);
}
($expected, $valid) = change_and_crash($node);
write_bytes($pool, WATERMARK_OFFSET + 32 * $_ + 20, "\x5A\x5B") for 0, 1;
cold_then_warm($node, $expected, 'watermark', qr/^it is not known how far the WAL was durable$/, 'both watermarks damaged');

# --- WAL is not what it was
($expected, $valid) = change_and_crash($node);
my ($best) = sort { $b->[0] <=> $a->[0] } watermarks($pool);
my (undef, $witness, undef, $timeline) = @$best;
my $segment = 16 * 1024 * 1024;
my $wal = sprintf '%s/pg_wal/%08X%08X%08X', $node->data_dir, $timeline,
  int(($witness - 1) / $segment) / 256, int(($witness - 1) / $segment) % 256;
my $byte = read_bytes($wal, ($witness - 1) % $segment, 1);
write_bytes($wal, ($witness - 1) % $segment, chr(ord($byte) ^ 1));
cold_after_crash($node, 'watermark', qr/^the WAL before [0-9A-F]+\/[0-9A-F]+ on timeline 1 is not what was written$/, 'WAL changed');
# as its last record is damaged, that transaction is lost in either case
$with = checksums($node, tables => [LOGGED]);
$node->stop;
is(checksums_without_pool($node, tables => [LOGGED]), $with, 'WAL changed: the same without the pool');
set_mode($node, 'always');
$node->start;
($expected, $valid) = change_and_crash($node);
warm_after_crash($node, $valid, 'WAL changed, then a crash');
contents_right($node, $expected, 'WAL changed, then a crash');
$node->stop;
done_testing();
