
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache save --list, and load of such an image: the list says which pages
# there are, and the data files what is in them.  So the list may be an old one,
# and of other relations than there are now.

use strict;
use warnings FATAL => 'all';

use File::Copy qw(copy);
use JSON::PP;
use List::Util qw(sum0 uniq);
use PCache;
use PCache::HotAndCold;
use POSIX qw(WNOHANG);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use constant {
	INDEX_OFFSET => 104,    # in the header of an image
	CREATED => qr/^the pool was created by this start$/,
};

my $node = new_node('main', shared_buffers => '32MB', init => { extra => ['--data-checksums'] });
my $data = $node->data_dir;
my $pool = pool_file($node);
my $image = "$data.pcache-image";
my $kept_image = "$data.kept-image";
my ($expected, $result, $offset, $outcome, $verdict);

# What a reboot of the host does to a pool in memory.
sub lose_pool
{
	unlink $pool or die "$pool: $!";
	return;
}

# Save a list of what a stopped server has left, and keep a copy.
sub save_list
{
	my ($name) = @_;
	my $saved = verb_json($node, 'save', '--list');

	is($saved->{rc}, 0, "$name: saved") or diag($saved->{stderr});
	copy($image, $kept_image) or die;
	return $saved;
}

sub bring_back_image
{
	copy($kept_image, $image) or die;
	chmod 0600, $image;
	return;
}

# A test: each listed page is counted once.
sub adds_up
{
	my ($list, $name) = @_;

	return is(
		sum0(map { $list->{$_} } qw(listed_twice relation_gone beyond_end unlogged
			  already_in_pool read no_room invalid_header wrong_checksum wal_not_durable unreadable)),
		$list->{listed}, "$name: each page is counted once");
}

# Load the list: the next start is warm.  Returns the result.
sub load_list
{
	my ($name, @args) = @_;
	my $loaded = verb_json($node, 'load', @args);

	is($loaded->{rc}, 0, "$name: loaded") or diag($loaded->{stderr});
	is($loaded->{next_start}, 'warm', "$name: the next start");
	is($loaded->{pages_kept}, $loaded->{list}{read}, "$name: all that was read is kept");
	ok(!-e $image, "$name: the image is removed");
	adds_up($loaded->{list}, $name);
	return $loaded;
}

# Start the server: it keeps so many pages, each of which equals its file.
sub starts_warm
{
	my ($name, $kept) = @_;

	is(verify_json($node, '--pages')->{compared}{impossible}, 0, "$name: no page that must not be");
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm start") or diag($outcome->{reason});
	is($outcome->{kept}, $kept, "$name: pages kept");
	is_deeply($outcome->{dropped}, {}, "$name: none was dropped");
	is(checksums($node), $expected, "$name: contents are right");
	return;
}

# Usage counts of our pages, wherever they are in the pool.
sub usage_of_pages
{
	my $counts = usage_counts($node);
	return { map { s/ in buffer \d+$//r => $counts->{$_} } keys %$counts };
}

$node->start;
load_data($node);
$node->safe_psql('postgres', q{
CREATE TABLE t_gone AS SELECT i, repeat('x', 500) FROM generate_series(1, 2000) i;
CREATE TABLE t_shorter AS SELECT i, repeat('x', 500) FROM generate_series(1, 2000) i;
VACUUM t_gone, t_shorter;
SELECT pg_prewarm('t_heap_pkey') FROM generate_series(1, 4)});
$expected = checksums($node);
my $valid = warm_up($node);
$node->stop;

# ---------------------------------------------------------------------------
# There and back.
# ---------------------------------------------------------------------------
my $before = do
{
	$offset = log_offset($node);
	$node->start;
	is(start_outcome($node, $offset)->{start}, 'warm', 'before: warm');
	my $counts = usage_of_pages();
	$node->stop;
	$counts;
};
cmp_ok(scalar(uniq(values %$before)), '>', 2, 'before: pages are more and less hot');
$result = save_list('there and back');
cmp_ok(-s $image, '<', 0.05 * $result->{pages_saved} * BLCKSZ, 'there and back: a list is small');
my $listed = $result->{pages_saved};
cmp_ok($listed, '>=', $valid, 'there and back: all pages are listed');
is(verb_json($node, 'verify', '--image' => $image)->{rc}, 0, 'there and back: verify of the image');
is(verb_json($node, 'load')->{already_warm}, JSON::PP::true, 'there and back: nothing to load while the pool is there');

lose_pool();
$result = verb_json($node, 'load', '--dry-run');
is($result->{rc}, 0, 'dry run: exit status') or diag($result->{stderr});
is($result->{list}{read}, $listed, 'dry run: all pages would be read');
ok(!-e $pool && -e $image, 'dry run: nothing was changed');
$result = load_list('there and back', '-j', '3');
is($result->{list}{read}, $listed, 'there and back: all pages were read');
is($result->{list}{listed}, $listed, 'there and back: all pages were listed');
starts_warm('there and back', $listed);
pages_equal_disk($node, 'there and back');
$node->stop;

# once more, for counts and reads of a server that has done nothing else
save_list('as before');
lose_pool();
($result->{rc}, my $out, my $err) = pcache($node, 'load');
is($result->{rc}, 0, 'as before: loaded');
like($out, qr/^listed: +\d+\nlisted twice: +0\nrelation is gone: +0\nbeyond end of file: +0\nunlogged: +0\n/m, 'as before: output');
like($out, qr/^read from files: +\d+\nno room: +0\n/m, 'as before: output of what was read');
like($out, qr/^next start: WARM/m, 'as before: next start');
$node->start;
my $after = usage_of_pages();
is_deeply([ grep { !exists $after->{$_} || $after->{$_} < $before->{$_} } sort keys %$before ],
	[], 'as before: each page is there, as hot as it was');
is(relation_reads($node), 0, 'as before: no relation block is read');
$node->stop;

# ---------------------------------------------------------------------------
# An old list: relations that are gone or shorter, pages that have changed.
# ---------------------------------------------------------------------------
$listed = save_list('old list')->{pages_saved};
$node->start;
my %is_gone = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', q{
SELECT pg_relation_filenode(oid) FROM pg_class WHERE oid = 't_gone'::regclass
UNION ALL SELECT pg_relation_filenode(reltoastrelid) FROM pg_class WHERE oid = 't_gone'::regclass
UNION ALL SELECT pg_relation_filenode(indexrelid) FROM pg_index
  WHERE indrelid = (SELECT reltoastrelid FROM pg_class WHERE oid = 't_gone'::regclass)});
$node->stop;
my $pages_gone = sealed_slots($pool, sub { $is_gone{ $_[0]->{rel_number} } });
cmp_ok($pages_gone, '>', 100, 'old list: it has pages of a relation that will be gone');
$node->start;
$node->safe_psql('postgres', q{
DROP TABLE t_gone;
DELETE FROM t_shorter WHERE i > 100;
UPDATE t_heap SET filler = repeat('new', 30) WHERE id % 3 = 0});
$node->safe_psql('postgres', 'VACUUM t_shorter');
$expected = checksums($node);
$node->stop;
lose_pool();
is(verb_json($node, 'verify', '--image' => $image)->{rc}, 0, 'old list: verify of the image');
$result = load_list('old list');
is($result->{list}{relation_gone}, $pages_gone, 'old list: pages of the relation that is gone');
cmp_ok($result->{list}{beyond_end}, '>', 100, 'old list: pages beyond the end of their file');
is($result->{list}{listed}, $listed, 'old list: it is the old one');
starts_warm('old list', $listed - $pages_gone - $result->{list}{beyond_end});
pages_equal_disk($node, 'old list');
$node->stop;

# A pool that is there, and cold: it is used again.
set_mode($node, 'off');
$node->start;
$node->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 100 = 0');
$expected = checksums($node);
$node->stop;
set_mode($node, 'planned_restart');
is(verify_json($node)->{rc}, 2, 'run without the pool: cold');
bring_back_image();
my $inode = (stat $pool)[1];
$result = load_list('run without the pool');
is((stat $pool)[1], $inode, 'run without the pool: the same file');
starts_warm('run without the pool', $result->{list}{read});
pages_equal_disk($node, 'run without the pool');
$node->stop;

# What recovery would reset.
bring_back_image();
lose_pool();
append_to_file("$data/standby.signal", '');
$result = verb_json($node, 'load', '--dry-run');
unlink "$data/standby.signal";
is($result->{rc}, 0, 'unlogged: exit status') or diag($result->{stderr}, $result->{detail});
cmp_ok($result->{list}{unlogged}, '>', 20, 'unlogged: pages of a relation that will be reset are not read');
adds_up($result->{list}, 'unlogged');

# ---------------------------------------------------------------------------
# What is not loaded.
# ---------------------------------------------------------------------------
set_mode($node, 'off');
$result = verb_json($node, 'load');
is($result->{rc}, 2, 'mode off: exit status');
like($result->{detail}, qr/^pcache.mode is off/, 'mode off: reason');
set_mode($node, 'planned_restart');

append_to_file("$data/backup_label", "x\n");
$result = verb_json($node, 'load');
unlink "$data/backup_label";
is($result->{rc}, 2, 'backup_label: exit status');
like($result->{detail}, qr/the cluster starts from a backup/, 'backup_label: reason');

ok(!-e $pool && -e $image, 'nothing was changed');

# the only chunk
$offset = unpack('Q', read_bytes($image, unpack('Q', read_bytes($image, INDEX_OFFSET, 8)), 8));
write_bytes($image, $offset + 70, chr(ord(read_bytes($image, $offset + 70, 1)) ^ 1));
$result = verb_json($node, 'load', '--strict');
is($result->{rc}, 1, 'damaged chunk, strict: exit status');
like($result->{stderr}, qr/^pg_pcache: error: chunk 0 of image "\Q$image\E" has a wrong checksum$/m, 'damaged chunk, strict: message');
ok(!-e $pool, 'damaged chunk, strict: no pool was made');
$result = verb_json($node, 'load');
is($result->{rc}, 2, 'damaged chunk: exit status');
is($result->{damaged_pages}, $listed, 'damaged chunk: its pages are counted');
like($result->{stderr}, qr/^pg_pcache: warning: chunk 0 of image "\Q$image\E" has a wrong checksum, which costs $listed pages$/m, 'damaged chunk: message');
ok(-e $image, 'damaged chunk: the image stays');

# after a crash the files are not complete
bring_back_image();
$node->start;
$node->stop('immediate');
lose_pool();
$result = verb_json($node, 'load');
is($result->{rc}, 2, 'crash: exit status');
is($result->{detail}, qq{image "$image": the cluster was not shut down cleanly}, 'crash: reason');
ok(!-e $pool && -e $image, 'crash: nothing was changed');
is(verb_json($node, 'verify', '--image' => $image)->{rc}, 2, 'crash: verify of the image knows');
(undef, $out) = pcache($node, 'load');
like($out, qr/^next start: COLD: image .* was not shut down cleanly$/m, 'crash: output');
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, CREATED, 'crash');
$node->safe_psql('postgres', 'INSERT INTO t_unlogged SELECT i, md5(i::text) FROM generate_series(1, 5000) i; VACUUM t_unlogged');
$expected = checksums($node);
warm_up($node);
$node->stop;
save_list('after the crash');

# ---------------------------------------------------------------------------
# Killed at each step: cold or warm as verify says, and never a wrong page.  The
# list can be loaded again.
# ---------------------------------------------------------------------------
SKIP:
{
	skip 'pg_pcache cannot be killed at chosen steps in this build', 1 if !can_be_killed();
	my @steps;

	{
		local $ENV{PG_PCACHE_TRACE_STEPS} = 1;

		lose_pool();
		$result = verb_json($node, 'load');
		is($result->{rc}, 0, 'steps: exit status');
		@steps = uniq($result->{stderr} =~ /^step: (\S+)$/mg);
	}
	is_deeply(\@steps, [ qw(load-created load-named warm-marked warm-freed warm-unsuspected
		  warm-task warm-filled warm-done load-removed) ], 'steps: all of them');
	for my $step (@steps, 'warm-task:5')
	{
		for my $again (0, 1)
		{
			my $name = "killed at $step" . ($again ? ', loaded again' : '');
			my $is_whole = $step =~ /done|removed/;
			my $killed;

			bring_back_image();
			lose_pool();
			{
				local $ENV{PG_PCACHE_KILL_AT} = $step;
				($killed) = pcache($node, 'load', '-j2');
			}
			is($killed, -9, "$name: killed");
			is(!!-e $image, $step ne 'load-removed', "$name: the image");
			if ($again && !$is_whole)
			{
				load_list($name);
				$is_whole = 1;
			}
			$verdict = verify_json($node, '--pages');
			is($verdict->{rc}, $is_whole ? 0 : 2, "$name: pg_pcache verify");
			is($verdict->{compared}{impossible} // 0, 0, "$name: no page that must not be");
			$offset = log_offset($node);
			$node->start;
			$outcome = start_outcome($node, $offset);
			is($outcome->{start}, $is_whole ? 'warm' : 'cold', "$name: so it is") or diag($outcome->{reason});
			is(checksums($node), $expected, "$name: contents are right");
			pages_equal_disk($node, $name);
			$node->stop;
		}
	}
}

# ---------------------------------------------------------------------------
# A signal while memory is allocated: what was made of the pool is removed.
# ---------------------------------------------------------------------------
{
	my $is_caught = 0;

	$node->append_conf('postgresql.conf', 'pcache.size = 256MB');
	for (1 .. 20)
	{
		bring_back_image();
		unlink $pool;
		my $pid = fork // die "fork: $!";
		if ($pid == 0)
		{
			open STDOUT, '>', "$data.load-output" or die;
			open STDERR, '>&', \*STDOUT or die;
			exec 'pg_pcache', '-D' => $data, 'load' or die;
		}
		# stopped, so that we know what it was doing
		usleep(500) until -s "$pool.tmp" || -e $pool || waitpid($pid, WNOHANG) == $pid;
		kill 'STOP', $pid;
		usleep(10000);
		$is_caught = -s "$pool.tmp" && (stat _)[12] * 512 < 240 * 1024 * 1024;
		kill 'TERM', $pid if $is_caught;
		kill 'CONT', $pid;
		waitpid $pid, 0;
		last if $is_caught;
	}
	ok($is_caught, 'signal: the pool was being allocated');
	is($? & 127, 15, 'signal: load dies of it');
	ok(!-e "$pool.tmp" && !-e $pool, 'signal: nothing of the pool is left');
	ok(-e $image, 'signal: the image is');
	$node->adjust_conf('postgresql.conf', 'pcache.size', undef);
}
unlink $image;

# ---------------------------------------------------------------------------
# Fewer buffers than pages: the hottest are taken.
# ---------------------------------------------------------------------------
my $sums;
$node->start;
$node->safe_psql('postgres', 'DROP EXTENSION pg_buffercache, pg_prewarm, pageinspect');
make_hot_and_cold($node, 4000, 1200);
$sums = hot_and_cold_sums($node);
$node->stop;
warm_hot_and_cold($node, 'hottest: an empty pool');
$node->stop;
save_list('hottest');
my %usage = map { join('/', @$_{qw(spc_oid db_oid rel_number fork_number block_number)}) => $_->{usage_count} }
  map { read_descriptor($pool, $_) } sealed_slots($pool);
lose_pool();
$node->append_conf('postgresql.conf', 'shared_buffers = 5MB');
$result = load_list('hottest');
is($result->{list}{read}, 640, 'hottest: as many as there are buffers');
is($result->{list}{no_room}, keys(%usage) - 640, 'hottest: the rest has no room');
my %taken = map { join('/', @$_{qw(spc_oid db_oid rel_number fork_number block_number)}) => $_->{usage_count} }
  map { read_descriptor($pool, $_) } sealed_slots($pool);
is_deeply(\%taken, { map { $_ => $usage{$_} } keys %taken }, 'hottest: as hot as they were');
my ($coldest) = sort { $a <=> $b } values %taken;
is_deeply([ grep { !exists $taken{$_} && $usage{$_} > $coldest } sort keys %usage ],
	[], 'hottest: nothing that was left out is hotter');
cmp_ok(scalar(uniq(values %usage)), '>', 1, 'hottest: that is a choice');
is(verify_json($node, '--pages')->{compared}{impossible}, 0, 'hottest: no page that must not be');
$offset = log_offset($node);
$node->start;
$outcome = start_outcome($node, $offset);
is($outcome->{kept}, 640, 'hottest: pages kept');
is(hot_and_cold_sums($node), $sums, 'hottest: contents are right');
$node->stop;

done_testing();
