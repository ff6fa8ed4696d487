
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache rebuild --warm-from-files: a pool filled from the data files starts
# warm, and its pages are those of the files.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', shared_buffers => '64MB', init => { extra => ['--data-checksums'] });
my $data = $node->data_dir;
my $pool = pool_file($node);
my ($rc, $out, $err, $result, $verdict, $offset, $outcome, $valid);

# The next start is warm, with all pages; reading the tables reads nothing.
sub starts_warm
{
	my ($name, $kept) = @_;

	$verdict = verify_json($node, '--pages');
	is($verdict->{rc}, 0, "$name: pg_pcache verify says warm");
	is($verdict->{pages}{kept}, $kept, "$name: pg_pcache verify says how many");
	is($verdict->{compared}{equal}, $kept, "$name: all pages equal their files");
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm start");
	is($outcome->{kept}, $kept, "$name: all pages were kept");
	is_deeply($outcome->{dropped}, {}, "$name: none was dropped");
	return;
}

# ---------------------------------------------------------------------------
# Refused.
# ---------------------------------------------------------------------------
sub refused
{
	my ($name, $message, @args) = @_;
	my ($rc, $out, $err) = pcache($node, 'rebuild', @args);

	is($rc, 1, "$name: exit status");
	is($out, '', "$name: nothing on stdout");
	like($err, $message, "$name: message");
	return;
}

$node->start;
load_data($node);
my $expected = checksums($node);
refused('live server', qr/^pg_pcache: error: cluster must be shut down\n.*detail: A server with PID \d+ is running/,
	'--warm-from-files');
my ($heap, $toast, $unlogged, $index) = map {
	$node->safe_psql('postgres', "SELECT pg_relation_filepath('$_')")
} qw(t_heap t_toast t_unlogged t_heap_pkey);
$node->stop('immediate');
refused('after a crash', qr/^pg_pcache: error: cluster was not shut down cleanly\n.*detail: .*\n.*hint: Start the server, and shut it down/,
	'--warm-from-files');
$node->start;
$expected =~ s/^t_unlogged.*$/t_unlogged|5000|/m;
$node->safe_psql('postgres', 'INSERT INTO t_unlogged SELECT i, md5(i::text) FROM generate_series(1, 5000) i; VACUUM t_unlogged');
$expected = checksums($node);
$node->stop;
for my $case (
	[ 'no relation', '', qr/option --relations needs a value\n.*hint: Write it as --relations=LIST/ ],
	[ 'blanks', ' , ', qr/option --relations names no relation\n.*hint: A relation is/ ],
	[ 'a name', 't_heap', qr/invalid relation "t_heap" for option --relations\n.*hint: A relation is DBOID\/RELFILENODE, or a path/ ],
	[ 'too large', '5/99999999999', qr/invalid relation "5\/99999999999"/ ],
	[ 'negative', '-5/1259', qr/invalid relation "-5\/1259"/ ],
	[ 'with a fork', "${heap}_fsm", qr/invalid relation/ ],
	[ 'another version', 'pg_tblspc/1/PG_9.6_1/5/1259', qr/invalid relation/ ],
	[ 'not there', '5/4294967295', qr/there is no relation "5\/4294967295" in the data directory\n.*hint: A relation gets another file/ ],
	[ 'one not there', "$heap,base/5/424242", qr/there is no relation "base\/5\/424242"/ ])
{
	my ($name, $list, $message) = @$case;

	refused("--relations, $name", qr/^pg_pcache: error: $message/,
		'--warm-from-files', "--relations=$list");
}
refused('--relations alone', qr/^pg_pcache: error: option --relations can only be used together with --warm-from-files\n/,
	"--relations=$heap");
for my $jobs (qw(0 -1 many 257), '')
{
	refused("--jobs '$jobs'", qr/^pg_pcache: error: .*(?:"\Q$jobs\E"|-j\/--jobs)/, '--warm-from-files', "--jobs=$jobs");
}
refused('--jobs alone', qr/option --jobs can only be used together with --warm-from-files/, '-j', '2');
append_to_file("$data/backup_label", "x\n");
refused('backup_label', qr/^pg_pcache: error: the next start would be cold, whatever is in the pool: the cluster starts from a backup\n/,
	'--warm-from-files');
unlink "$data/backup_label";
my $auto = slurp_file("$data/postgresql.auto.conf");
append_to_file("$data/postgresql.auto.conf", "no_such_setting = 1\n");
refused('unreadable configuration', qr/error: could not find out where the pool is: the server's configuration could not be read\n/, '--warm-from-files');
truncate "$data/postgresql.auto.conf", length $auto;
$node->append_conf('postgresql.conf', 'shared_buffers = 65MB');
refused('larger shared_buffers', qr/is too small for "shared_buffers": it has room for 8192 blocks, 8320 are needed\n.*hint: .*pg_pcache rebuild --resize/,
	'--warm-from-files');
$node->append_conf('postgresql.conf', 'shared_buffers = 64MB');
is(verify_json($node)->{rc}, 0, 'what was refused has not touched the pool');

# ---------------------------------------------------------------------------
# A brand-new pool, as after a DIMM was replaced.
# ---------------------------------------------------------------------------
for my $mode ('planned_restart', 'always')
{
	is((pcache($node, 'init', '--force', '--size' => '64MB'))[0], 0, "$mode: a new pool");
	set_mode($node, $mode);
	my $before = slurp_file($pool);
	$result = verb_json($node, 'rebuild', '--warm-from-files', '--dry-run');
	is($result->{rc}, 0, "$mode, dry run: exit status");
	my $pages = $result->{warm_from_files}{pages_in_files};
	cmp_ok($pages, '>', 1500, "$mode, dry run: pages in files");
	is($result->{warm_from_files}{read}, $pages, "$mode, dry run: all of them would be read");
	ok(slurp_file($pool) eq $before, "$mode, dry run: nothing was changed");
	undef $before;

	$result = verb_json($node, 'rebuild', '--warm-from-files', '-j2');
	is($result->{rc}, 0, "$mode: exit status") or diag($result->{stderr});
	is($result->{next_start}, 'warm', "$mode: next start");
	is($result->{warm_from_files}{read}, $pages, "$mode: all pages were read");
	is($result->{pages_kept}, $pages, "$mode: all will be kept");
	starts_warm($mode, $pages);
	is(relation_reads($node), 0, "$mode: no relation block is read from disk");
	is(checksums($node), $expected, "$mode: contents are right");
	pages_equal_disk($node, $mode);
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_buffercache b JOIN pg_class c
		ON b.relfilenode = pg_relation_filenode(c.oid) WHERE c.relname = 't_unlogged'}) > 0, 1,
		"$mode: unlogged pages are there");
	# in use: changes, a checkpoint, a crash
	$node->safe_psql('postgres', q{UPDATE t_unlogged SET filler = filler || 'x'; UPDATE t_heap SET grp = grp + 0 WHERE id % 10 = 0});
	$expected = checksums($node);
	restart_warm($node, "$mode, used");
	is(checksums($node), $expected, "$mode, used: contents are right");
	$node->stop('immediate');
	$node->start;
	my $after_crash = $expected =~ s/^t_unlogged.*$/t_unlogged|0|0/mr;
	is(checksums($node), $after_crash, "$mode, crashed: unlogged relations are empty, the rest is right");
	$node->safe_psql('postgres', 'INSERT INTO t_unlogged SELECT i, md5(i::text) FROM generate_series(1, 5000) i');
	$expected = checksums($node);
	$node->stop;
}
set_mode($node, 'planned_restart');

# ---------------------------------------------------------------------------
# Relations of one's choice, and only what is missing.
# ---------------------------------------------------------------------------
my ($db, $rel) = $heap =~ /^base\/(\d+)\/(\d+)$/;
$result = verb_json($node, 'rebuild', '--reset', '--warm-from-files', "--relations=$db/$rel, $toast");
is($result->{rc}, 0, 'two relations: exit status') or diag($result->{stderr});
is($result->{warm_from_files}{relations}, 2, 'two relations');
my $two = $result->{warm_from_files}{read};
my %rels = map { $_->{rel_number} => 1 } map { read_descriptor($pool, $_) } sealed_slots($pool);
is_deeply([ sort keys %rels ], [ sort $rel, $toast =~ /(\d+)$/ ], 'two relations: the pool holds no others');
$result = verb_json($node, 'rebuild', '--warm-from-files', "--relations=$heap $index");
is($result->{rc}, 0, 'one more: exit status');
is($result->{warm_from_files}{already} // 'none', 'none', 'keys as documented');
cmp_ok($result->{warm_from_files}{already_in_pool}, '>', 0, 'one more: what is there is not read again');
is($result->{warm_from_files}{already_in_pool} + $result->{warm_from_files}{read},
	$result->{warm_from_files}{pages_in_files}, 'one more: the rest is');
is($result->{pages_kept}, $two + $result->{warm_from_files}{read}, 'one more: pages kept');
$result = verb_json($node, 'rebuild', '--warm-from-files');
is($result->{warm_from_files}{already_in_pool}, $two + sealed_slots($pool, sub { $_[0]->{rel_number} == ($index =~ /(\d+)$/)[0] }),
	'all of them: what is there is not read again');
starts_warm('all of them', $result->{pages_kept});
is(relation_reads($node), 0, 'all of them: no relation block is read from disk');
is(checksums($node), $expected, 'all of them: contents are right');
$valid = warm_up($node);
$node->stop;
$result = verb_json($node, 'rebuild', '--warm-from-files');
is($result->{rc}, 0, 'once more: exit status');
starts_warm('once more', $result->{pages_kept});
cmp_ok($result->{pages_kept}, '>=', $valid, 'once more: nothing was lost');
is(checksums($node), $expected, 'once more: contents are right');
$node->stop;

# Other tablespaces, other databases.
my $location = PostgreSQL::Test::Utils::tempdir();
$node->start;
$node->safe_psql('postgres', "CREATE TABLESPACE ts LOCATION '$location'");
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE TABLE t (id int) TABLESPACE ts; INSERT INTO t SELECT generate_series(1, 10000)');
my $path = $node->safe_psql('other', "SELECT pg_relation_filepath('t')");
$node->stop;
$result = verb_json($node, 'rebuild', '--reset', '--warm-from-files', "--relations=$path");
is($result->{warm_from_files}{relations}, 1, 'tablespace: found');
cmp_ok($result->{warm_from_files}{read}, '>', 40, 'tablespace: pages');
starts_warm('tablespace', $result->{pages_kept});
is($node->safe_psql('other', 'SELECT count(*), sum(id) FROM t'), '10000|50005000', 'tablespace: contents are right');
$node->stop;

# ---------------------------------------------------------------------------
# No room for all: small relations first; -P; text.
# ---------------------------------------------------------------------------
$node->append_conf('postgresql.conf', 'shared_buffers = 4MB');
($rc, $out, $err) = pcache($node, 'rebuild', '--reset', '--warm-from-files', '--progress');
is($rc, 0, 'no room: exit status');
like($err, qr/^\d+\/4 MB \(100%\) done$/m, 'no room: --progress');
like($out, qr/^read from files: +512\nno room: +[1-9]\d*$/m, 'no room: output');
like($out, qr/^cached data: +64\.00 MB$/m, 'no room: size');
like($out, qr/^next start: WARM, 512 of 512 pages$/m, 'no room: next start');
starts_warm('no room', 512);
is(checksums($node), $expected, 'no room: contents are right');
$node->stop;
$node->append_conf('postgresql.conf', 'shared_buffers = 64MB');

# ---------------------------------------------------------------------------
# Pages that the server would not take.
# ---------------------------------------------------------------------------
my $good = read_bytes("$data/$heap", 5 * BLCKSZ, BLCKSZ);
write_bytes("$data/$heap", 5 * BLCKSZ + 5000, "damage");
my $other_good = read_bytes("$data/$heap", 7 * BLCKSZ, BLCKSZ);
write_bytes("$data/$heap", 7 * BLCKSZ + 12, pack('SS', 6000, 100));
$result = verb_json($node, 'rebuild', '--reset', '--warm-from-files');
is($result->{rc}, 0, 'damaged pages: exit status');
is($result->{warm_from_files}{wrong_checksum}, 1, 'damaged pages: checksum');
is($result->{warm_from_files}{invalid_header}, 1, 'damaged pages: header');
is(scalar(sealed_slots($pool, sub { $_[0]->{rel_number} == $rel && $_[0]->{fork_number} == 0
	&& ($_[0]->{block_number} == 5 || $_[0]->{block_number} == 7) })), 0, 'damaged pages: not in the pool');
write_bytes("$data/$heap", 5 * BLCKSZ, $good);
write_bytes("$data/$heap", 7 * BLCKSZ, $other_good);
starts_warm('damaged pages, mended', $result->{pages_kept});
is(checksums($node), $expected, 'damaged pages, mended: contents are right');
$node->stop;

# A page from the future.
write_bytes("$data/$heap", 5 * BLCKSZ, pack('LL', 0x7000, 0));
run_log([ 'pg_checksums', '--disable', '-D' => $data ]);
$result = verb_json($node, 'rebuild', '--reset', '--warm-from-files');
is($result->{warm_from_files}{wal_not_durable}, 1, 'LSN beyond the WAL: not taken');
write_bytes("$data/$heap", 5 * BLCKSZ, $good);
starts_warm('LSN beyond the WAL, mended', $result->{pages_kept});
is(checksums($node), $expected, 'LSN beyond the WAL, mended: contents are right');
$node->stop;

# ---------------------------------------------------------------------------
# Killed at every step: the next start is cold, or warm with right pages.
# ---------------------------------------------------------------------------
if (!can_be_killed())
{
	note('pg_pcache was built without steps to be killed at');
	done_testing();
	exit;
}
my @steps;
{
	local $ENV{PG_PCACHE_TRACE_STEPS} = 1;
	my %count;

	($rc, $out, $err) = pcache($node, 'rebuild', '--reset', '--warm-from-files');
	is($rc, 0, 'steps: exit status');
	push @steps, $count{$_}++ == 0 ? $_ : () for $err =~ /^step: (\S+)$/mg;
	push @steps, 'warm-task:5';
}
cmp_ok(scalar(@steps), '>', 9, 'there are steps to be killed at');
for my $options ([], ['--reset'])
{
	for my $step (@steps)
	{
		# without --reset most pages are there already, so there are few tasks
		next if !@$options && $step =~ /^reset|:/;
		my $name = "killed at $step" . (@$options ? ', with --reset' : '');
		my ($verdict, $killed);

		# a pool that would be warm, with some pages
		$node->start;
		$node->safe_psql('postgres', "INSERT INTO t_other VALUES (1, 'x')");
		relation_reads($node);
		$node->stop;
		{
			local $ENV{PG_PCACHE_KILL_AT} = $step;
			($killed) = pcache($node, 'rebuild', @$options, '--warm-from-files', '-j2');
		}
		is($killed, -9, "$name: killed");
		$verdict = verify_json($node, '--pages');
		ok($verdict->{rc} == 0 || $verdict->{rc} == 2, "$name: pg_pcache verify says warm or cold");
		$offset = log_offset($node);
		$node->start;
		$outcome = start_outcome($node, $offset);
		is($outcome->{start}, $verdict->{rc} == 0 ? 'warm' : 'cold', "$name: so it is")
		  or diag($outcome->{reason} // '');
		note("$name: $outcome->{start} " . ($outcome->{reason} // ''));
		is(checksums($node), $expected, "$name: contents are right");
		pages_equal_disk($node, $name);
		$node->stop;
	}
}

done_testing();
