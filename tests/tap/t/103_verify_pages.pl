
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache verify --pages: what must not be in the pool is found, and nothing else is.

use strict;
use warnings FATAL => 'all';

use List::Util qw(sum0);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', init => { extra => ['--data-checksums'] });
my $data = $node->data_dir;
my $pool = pool_file($node);
my ($rc, $out, $err, $verdict, $status, @slots);

sub refused
{
	my ($name, $message, @args) = @_;
	my ($rc, $out, $err) = pcache($node, @args);

	is($rc, 1, "$name: exit status");
	is($out, '', "$name: nothing on stdout");
	like($err, qr/^pg_pcache: error: $message/, "$name: message");
	return;
}

# ---------------------------------------------------------------------------
# Options that do not fit.
# ---------------------------------------------------------------------------
for my $case (
	[ [ 'status', '--pages' ], qr/option --pages can only be used with "verify"\n/ ],
	[ [ 'verify', '-h', 'localhost' ], qr/option --host can only be used with "prepare" or "restart"\n/ ],
	[ [ 'verify', '-p', '1' ], qr/option --port can only be used with "prepare" or "restart"\n/ ],
	[ [ 'verify', '-U', 'me' ], qr/option --username can only be used with "prepare" or "restart"\n/ ],
	[ [ 'verify', '-d', 'db' ], qr/option --dbname can only be used with "prepare" or "restart"\n/ ],
	[ [ 'verify', '-w' ], qr/option --no-password can only be used with "prepare" or "restart"\n/ ],
	[ [ 'status', '-W' ], qr/option --password can only be used with "prepare" or "restart"\n/ ])
{
	refused("@{ $case->[0] }", $case->[1], @{ $case->[0] });
}

# ---------------------------------------------------------------------------
# After a clean stop all pages equal their files.
# ---------------------------------------------------------------------------
$node->start;
load_data($node);
my $expected = checksums($node);
warm_up($node);
my $heap = $node->safe_psql('postgres', "SELECT pg_relation_filepath('t_heap')");
my ($db, $rel) = $heap =~ /^base\/(\d+)\/(\d+)$/;
$node->stop;

my $before = slurp_file($pool);
$verdict = verify_json($node, '--pages');
is($verdict->{rc}, 0, 'clean stop: exit status');
is(sum0(values %{ $verdict->{compared} }), $verdict->{pages}{kept}, 'clean stop: all pages were compared');
is($verdict->{compared}{equal} + $verdict->{compared}{hint_bits}, $verdict->{pages}{kept},
	'clean stop: they equal their files');
($rc, $out, $err) = pcache($node, 'verify', '--pages', '--progress');
is($rc, 0, 'text: exit status');
like($out, qr/^equal: +\d+\nhint bits: +\d+\nolder: +0\nimpossible: +0\nunreadable: +0\nchecksum in file: +0\n/m, 'text: counts');
like($err, qr/^\d+\/\d+ MB \(100%\) done$/m, '--progress');
ok(slurp_file($pool) eq $before, 'nothing was changed');

# ---------------------------------------------------------------------------
# What must not be there is found, and what may be is not.
# ---------------------------------------------------------------------------
my $blocks_offset = read_superblock($pool)->{blocks_offset};
my @heap = sealed_slots($pool, sub { $_[0]->{rel_number} == $rel && $_[0]->{fork_number} == 0 });
my $slot = $heap[3];
my $desc = read_descriptor($pool, $slot);
my $offset = $blocks_offset + $slot * BLCKSZ;
my $page = read_bytes($pool, $offset, BLCKSZ);
my $file_offset = $desc->{block_number} * BLCKSZ;
my $file_page = read_bytes("$data/$heap", $file_offset, BLCKSZ);
my $lsn_of = sub { my ($hi, $lo) = unpack 'LL', $_[0]; ($hi << 32) + $lo };
my $with_lsn = sub { my ($bytes, $lsn) = @_; pack('LL', $lsn >> 32, $lsn & 0xFFFFFFFF) . substr $bytes, 8 };
my $item = unpack 'L', substr $page, 24, 4;
my $prepared = pack 'x10 S5 x4 x8160 S4', 0, 24, 8184, 8184, 0x2004, 0, 0, 0, 0xFF82;
my $tuple = $item & 0x7FFF;

# Otherwise a file that was written to is not compared.
sub write_heap
{
	my ($at, $bytes) = @_;
	my @times = (stat "$data/$heap")[ 8, 9 ];

	write_bytes("$data/$heap", $at, $bytes);
	utime @times, "$data/$heap" or die "$data/$heap: $!";
	return;
}

for my $case (
	[ 'user data changed in the pool', sub { substr(my $p = $_[0], $tuple + 40, 4) = 'xxxx'; $p }, undef, 'impossible', 1 ],
	[ 'a header out of bounds', sub { my $p = $_[0]; substr($p, 12, 2) = pack 'S', 9000; $p }, undef, 'impossible', 1 ],
	[ 'all zeros', sub { "\0" x BLCKSZ }, undef, 'impossible', 1 ],
	[ 'an LSN that is not the descriptor\'s', sub { $with_lsn->($_[0], $lsn_of->($_[0]) + 8) }, undef, 'impossible', 1 ],
	[ 'the LSN of a hint that was logged', undef, sub { $with_lsn->($_[0], $lsn_of->($_[0]) + 8) }, 'hint_bits', 0 ],
	[ 'the file is newer', undef, sub { substr(my $p = $_[0], $tuple + 40, 4) = 'xxxx'; $with_lsn->($p, $lsn_of->($p) + 8) }, 'impossible', 1 ],
	[ 'the file is older, after a clean stop', undef, sub { $with_lsn->($_[0], $lsn_of->($_[0]) - 8) }, 'impossible', 1 ],
	[ 'hint bits', sub { my $p = $_[0]; substr($p, $tuple + 21, 1) = chr(ord(substr $p, $tuple + 21, 1) ^ 0x03); $p }, undef, 'hint_bits', 0 ],
	[ 'a prune hint, a checksum', sub { my $p = $_[0]; substr($p, 8, 2) = 'zz'; substr($p, 20, 4) = 'zzzz'; $p }, undef, 'hint_bits', 0 ],
	[ 'a bit that is no hint', sub { my $p = $_[0]; substr($p, $tuple + 21, 1) = chr(ord(substr $p, $tuple + 21, 1) ^ 0x20); $p }, undef, 'impossible', 1 ],
	[ 'a page that was only prepared', sub { $prepared }, sub { "\0" x BLCKSZ }, 'hint_bits', 0 ],
	[ 'a page that was only prepared, and was empty before', sub { $prepared }, sub { $with_lsn->($prepared, $lsn_of->($_[0])) }, 'hint_bits', 0 ],
	[ 'a page that was only prepared, and was not empty before', sub { $prepared }, undef, 'impossible', 1 ],
	[ 'a prepared page that was used', sub { substr(my $p = $prepared, 5000, 1) = 'x'; $p }, sub { "\0" x BLCKSZ }, 'impossible', 1 ],
	[ 'another line pointer', sub { my $p = $_[0]; substr($p, 24, 4) = pack 'L', $item ^ 0x8; $p }, undef, 'impossible', 1 ],
	[ 'a checksum in the pool, which has none', sub { my $p = $_[0]; substr($p, 8, 2) = 'zz'; $p }, undef, 'equal', 0 ],
	[ 'a wrong checksum in the file', undef, sub { my $p = $_[0]; substr($p, 8, 2) = 'zz'; $p }, 'checksum_in_file', 1 ])
{
	my ($name, $in_pool, $in_file, $count, $status) = @$case;
	my $usual = verify_json($node, '--pages')->{compared}{$count};

	write_bytes($pool, $offset, $in_pool->($page)) if defined $in_pool;
	write_heap($file_offset, $in_file->($file_page)) if defined $in_file;
	$verdict = verify_json($node, '--pages');
	is($verdict->{rc}, $status, "$name: exit status");
	is($verdict->{compared}{$count}, $usual + ($count eq 'equal' ? 0 : 1), "$name: counted as $count");
	is($verdict->{next_start}, 'warm', "$name: the gates do not look at pages");
	if ($status)
	{
		like($verdict->{stderr}, qr/^pg_pcache: error: page in slot $slot: [a-z ]+: base\/$db\/$rel, block $desc->{block_number}$/m,
			"$name: the page is named");
	}
	else
	{
		is($verdict->{stderr}, '', "$name: nothing on stderr");
	}
	write_bytes($pool, $offset, $page);
	write_heap($file_offset, $file_page);
}
# Many of them.
write_bytes($pool, $blocks_offset + $_ * BLCKSZ, "\0" x BLCKSZ) for @heap[0 .. 24];
$verdict = verify_json($node, '--pages');
is($verdict->{compared}{impossible}, 25, 'many: all are counted');
like($verdict->{stderr}, qr/detail: There are 5 more such pages\.\n$/, 'many: not all are told');
open my $fh, '+<:raw', $pool or die $!;
print $fh $before;
close $fh;

$status = status_json($node);
is($status->{listed_pages}, $status->{saved_pages}, 'status: listed pages');
is($status->{damaged_entries}, 0, 'status: damaged entries');

set_mode($node, 'always');
$node->start;
warm_up($node);

# ---------------------------------------------------------------------------
# After a crash: pages older than the redo point stay, and equal their files.
# ---------------------------------------------------------------------------
$node->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id <= 500');
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id BETWEEN 5000 AND 5500');
$expected = checksums($node);
kill_seen($node);
$verdict = verify_json($node, '--pages');
is($verdict->{rc}, 0, 'crash: exit status') or diag($verdict->{stderr});
cmp_ok($verdict->{compared}{equal} + $verdict->{compared}{hint_bits}, '>', 800, 'crash: pages equal their files');
is($verdict->{compared}{$_}, 0, "crash: none is $_") for qw(older impossible unreadable);
cmp_ok($verdict->{pages}{dirty}, '>', 10, 'crash: pages that were dirty are dropped');
$node->start;
is(checksums($node), $expected =~ s/^t_unlogged.*$/t_unlogged|0|0/mr, 'crash: contents are right');
$node->stop;

# A file that cannot be read.
SKIP:
{
	skip 'root may read everything', 2 if $> == 0;
	chmod 0, "$data/$heap";
	$verdict = verify_json($node, '--pages');
	is($verdict->{rc}, 1, 'unreadable file: exit status');
	cmp_ok($verdict->{compared}{unreadable}, '>', 0, 'unreadable file: counted');
	chmod 0600, "$data/$heap";
}

# A pool that is cut off while nobody looks: what is left is compared.
truncate $pool, $blocks_offset + 100 * BLCKSZ;
$verdict = verify_json($node, '--pages');
is($verdict->{rc}, 0, 'cut off: warm');
is($verdict->{pages}{kept}, 100, 'cut off: what is left will be kept');
cmp_ok($verdict->{pages}{bad_block}, '>', 0, 'cut off: the rest is counted');
is($verdict->{compared}{unreadable}, 0, 'cut off: nothing unreadable is compared');
truncate $pool, $blocks_offset - 1;
$verdict = verify_json($node, '--pages');
is($verdict->{rc}, 2, 'descriptors cut off: cold');
is($verdict->{reason}, 'geometry', 'descriptors cut off: why');
$status = status_json($node);
is($status->{rc}, 0, 'cut off: status does not mind');

done_testing();
