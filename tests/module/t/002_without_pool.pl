
# Copyright (c) 2026, the persistent-cache developers

# A pool that is lost, damaged or somebody else's, and a directory that will not do: the
# server starts, cold or without the pool, says why, and has the right contents.

use strict;
use warnings FATAL => 'all';

use Digest::SHA qw();
use File::Path qw(remove_tree);
use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main');
my $directory = pool_dir($node);
my $pool = pool_file($node);

my $saved = $node->basedir . '/saved';
my $right;

# Have the cluster, its configuration and the pool as they were after a clean stop.
sub put_all_back
{
	$node->stop('immediate') if defined $node->{_pid};
	put_back($node, "$saved/data");
	remove_tree($directory);
	system_or_bail('cp', '-a', "$saved/pool", $directory);
	return;
}

# Cold, after a change of the pool, as pg_pcache verify foretells.
sub cold
{
	my ($name, $reason, $code) = @_;

	put_all_back();
	$code->();
	if (-e $pool)
	{
		my $verdict = verify_json($node);

		is($verdict->{rc}, 2, "$name: pg_pcache verify says cold");
		like($verdict->{detail}, $reason, "$name: pg_pcache verify says why");
	}
	cold_start($node, $reason, $name, right => $right);
	return;
}

# Without the pool, after a change of it or of the configuration.
sub without
{
	my ($name, $warning, $code, $look) = @_;
	my $log;

	put_all_back();
	$code->();
	$log = start_without($node, $warning, $name, right => $right);
	$look->() if defined $look;
	return $log;
}

# Warm, and what is dropped.
sub warm
{
	my ($name, $code) = @_;
	my $outcome;

	put_all_back();
	$code->();
	$outcome = start_and_compare($node, $name, right => $right);
	is($outcome->{start}, 'warm', "$name: warm");
	return $outcome;
}

sub set { my ($name, $value) = @_; $node->append_conf('postgresql.conf', "$name = $value"); return }
sub digest { return Digest::SHA->new(256)->addfile($_[0])->hexdigest }

# Make a file with these bytes, and that size.
sub make_file
{
	my ($path, $bytes, $size) = @_;

	unlink $path;
	append_to_file($path, $bytes);
	truncate $path, $size or die if defined $size;
	chmod 0600, $path;
	return;
}

$node->start;
load_tables($node);
warm_pages($node);
$node->stop;
pool_equals_files($node, 'the pool that is damaged here');
mkdir $saved;
system_or_bail('cp', '-a', $node->data_dir, "$saved/data");
system_or_bail('cp', '-a', $directory, "$saved/pool");
$right = oracle($node);

# ---------------------------------------------------------------- the file
cold('the pool deleted', qr/^the pool was created by this start$/, sub { unlink $pool or die });
cold('the directory deleted', qr/^the pool was created by this start$/, sub { remove_tree($directory) });

cold('the pool of another cluster',
	qr/^the pool belongs to the cluster with system identifier \d+$/,
	sub { patch_superblock($pool, system_identifier => sub { $_[0] + 1 }) });
cold('cut off in its head',
	qr/^the pool file has \d+ bytes, which is too small for 3072 blocks$/,
	sub { truncate $pool, 3 * 1024 * 1024 or die });
cold('emptied', qr/./, sub { write_bytes($pool, 4096, "\0" x 4096); truncate $pool, 4096 or die });
cold('a hole in its head', qr/^the pool file has a hole where it may have said/,
	sub { system_or_bail('fallocate', '-p', '-o' => 8192, '-l' => 65536, $pool) });
cold('both superblocks damaged', qr/checksum|CRC/i, sub { damage_superblock($pool, 'saved_pages', 0, COPY_OFFSET) });
cold('another version of the format', qr/^the pool has format version 9, this server has 3$/,
	sub { patch_superblock($pool, format_version => 9) });
# version 1.0.0 had its own cache, and no buffer headers in the pool
cold('a pool of version 1.0.0', qr/^the pool has format version 2, this server has 3$/,
	sub {
		my $sb = read_superblock($pool);
		my $headers = DESCRIPTORS_OFFSET + $sb->{capacity} * DESCRIPTOR_SIZE;

		write_bytes($pool, $headers, "\0" x ($sb->{blocks_offset} - $headers));
		patch_superblock($pool, format_version => 2);
	});
is(read_superblock($pool)->{format_version}, 3, 'a pool of version 1.0.0: is replaced');
cold('another major version', qr/^the pool belongs to PostgreSQL 12 /, sub { patch_superblock($pool, pg_major => 12) });
cold('an offset that leads out of the file', qr/ bytes/, sub { patch_superblock($pool, blocks_offset => sub { $_[0] + 2**40 }) });
cold('a state that is unknown', qr/^the state of the pool is 77, /, sub { patch_superblock($pool, state => 77) });
cold('a pool that was in use', qr/^the server was not shut down cleanly$/, sub { patch_superblock($pool, state => STATE_DIRTY) });

for my $at (0, COPY_OFFSET)
{
	my $name = $at == 0 ? 'the first superblock damaged' : 'the copy of the superblock damaged';

	warm($name, sub { damage_superblock($pool, 'saved_pages', $at) });
	is(read_bytes($pool, 0, SUPERBLOCK_SIZE), read_bytes($pool, COPY_OFFSET, SUPERBLOCK_SIZE), "$name: it is mended");
}

# Blocks that were never there, or are not any more.
for my $case (
	[ 'holes in its blocks', sub { system_or_bail('fallocate', '-p', '-o' => $_[0] + 100 * BLCKSZ, '-l' => 300 * BLCKSZ, $pool) } ],
	[ 'cut off in its blocks', sub { truncate $pool, $_[0] + 200 * BLCKSZ or die } ])
{
	my ($name, $code) = @$case;
	my $outcome = warm($name, sub { $code->(read_superblock($pool)->{blocks_offset}) });

	cmp_ok($outcome->{dropped}{'bad block'} // 0, '>=', 300, "$name: what is missing is dropped");
	cmp_ok($outcome->{kept}, '>', 100, "$name: the rest is kept");
	$node->stop;
	pool_equals_files($node, $name);
}

# Entries of the ledger that are not what was written.
my $outcome = warm('a damaged ledger', sub {
	my @slots = sealed_slots($pool);
	my $twin = read_descriptor($pool, $slots[7]);
	my ($source, $target) = map { read_superblock($pool)->{blocks_offset} + $slots[$_] * BLCKSZ } 7, 6;

	write_descriptor($pool, $slots[0], crc => 1);
	write_descriptor($pool, $slots[1], slot => $slots[2]);
	write_descriptor($pool, $slots[3], rel_number => 4_000_000_000);
	write_descriptor($pool, $slots[4], fork_number => 7);
	write_descriptor($pool, $slots[5], block_number => 4_000_000);
	write_descriptor($pool, $slots[6], map { $_ => $twin->{$_} } qw(spc_oid db_oid rel_number fork_number block_number));
	write_bytes($pool, $target, read_bytes($pool, $source, BLCKSZ));
});
is_deeply(
	$outcome->{dropped},
	{
		'damaged descriptor' => 2,
		'no such relation' => 1,
		'invalid tag' => 1,
		'beyond end of file' => 1,
		'duplicate' => 1
	},
	'a damaged ledger: each damage is seen');

# All slots claim one page: it is entered once, and no chain of the mapping table has a loop.
my @claims;
$outcome = warm('a forged ledger', sub {
	my $blocks = read_superblock($pool)->{blocks_offset};
	my %page;

	@claims = sealed_slots($pool);
	%page = %{ read_descriptor($pool, $claims[0]) }{qw(spc_oid db_oid rel_number fork_number block_number)};
	for my $slot (@claims)
	{
		write_descriptor($pool, $slot, %page);
		write_bytes($pool, $blocks + $slot * BLCKSZ, read_bytes($pool, $blocks + $claims[0] * BLCKSZ, BLCKSZ));
	}
});
is("$outcome->{kept} of $outcome->{saved}", '1 of ' . @claims, 'a forged ledger: one page is kept');
is_deeply($outcome->{dropped}, { duplicate => @claims - 1 }, 'a forged ledger: all others are dropped');

# Not a pool: nothing is written to it.
for my $case (
	[ 'a file without magic', 'precious' x 1000, 64 * 1024 * 1024 ],
	[ 'a short file', 'precious', undef ],
	[ 'an empty file', '', undef ])
{
	my ($name, $bytes, $size) = @$case;
	my $digest;

	without($name, qr/file "\Q$pool\E" is not a persistent cache pool/,
		sub { make_file($pool, $bytes, $size); $digest = digest($pool) },
		sub { is(digest($pool), $digest, "$name: never written to") });
}
# (TAP 274 and tests/unit/test_dir.c have links, pipes and modes.)

# ---------------------------------------------------------------- the directory
without('a directory that cannot be written', qr/directory "[^"]*closed" is not writable/,
	sub { mkdir pool_root() . '/closed', 0500; set('pcache.directory', "'" . pool_root() . "/closed/p'") });
chmod 0700, pool_root() . '/closed';
without('a file in place of the directory', qr/could not open persistent cache pool "[^"]*": Not a directory/,
	sub { make_file(pool_root() . '/file', 'x'); set('pcache.directory', "'" . pool_root() . "/file'") });
without('no directory', qr/"pcache.directory" is not set/, sub { set('pcache.directory', "''") });
without('a directory inside the data directory', qr/ is inside the data directory/,
	sub { set('pcache.directory', "'" . $node->data_dir . "/pool'") },
	sub { ok(!-e $node->data_dir . '/pool', 'nothing is made there') });
without('an ordinary file system without a pool', qr/ is on an ordinary file system/,
	sub { set('pcache.directory', "'$ENV{PCACHE_ROOT}/build/tmp/no_pool_here'") },
	sub { ok(!-e "$ENV{PCACHE_ROOT}/build/tmp/no_pool_here", 'nothing is made there') });
like(
	without('a relative directory', qr/"pcache.directory" is not set/, sub { set('pcache.directory', 'here') }),
	qr/The directory must be an absolute path/, 'a relative directory: the log says what is wrong');

# no worker, who would allocate the pool: its memory is given back
without('no slot for the worker', qr/there is no slot for the background worker of the persistent cache/,
	sub { set('max_worker_processes', 0) },
	sub { cmp_ok(-s $pool, '<=', 2 * 1024 * 1024, 'no slot for the worker: the pool gives its memory back') });

# The server's own buffers are in huge pages, if it is told so.
SKIP:
{
	skip 'this machine has huge pages', 3 if slurp_file('/proc/meminfo') !~ /^HugePages_Free:\s+0$/m || slurp_file('/proc/sys/vm/nr_overcommit_hugepages') != 0;
	put_all_back();
	set('huge_pages', 'on');
	chmod 0755, $directory;
	start_fails($node, qr/could not map anonymous shared memory/, 'huge_pages is on, and there is no pool');

	# what would have given the memory of a pool back does not do so if it cannot start
	put_all_back();
	set('huge_pages', 'on');
	set('max_worker_processes', 0);
	start_fails($node, qr/could not map anonymous shared memory/, 'a start that cannot use the pool, and fails');
	set('huge_pages', 'off');
	set('max_worker_processes', 8);
	is(start_and_compare($node, 'a start that fails', right => $right)->{start}, 'warm', 'a start that fails: the pool is as it was');
}

# "postgres -C" is no start
put_all_back();
set('max_worker_processes', 0);
for my $name (qw(shared_memory_size shared_memory_size_in_huge_pages))
{
	my ($out, $err) = run_command([ 'postgres', '-D' => $node->data_dir, '-C' => $name ]);

	like($out, qr/^\d+$/, "postgres -C $name: an answer");
	is($err, '', "postgres -C $name: no more");
}
set('max_worker_processes', 8);
is(start_and_compare($node, 'postgres -C', right => $right)->{start}, 'warm', 'postgres -C: the pool is as it was');

# required: nothing starts
put_all_back();
set('pcache.required', 'on');
chmod 0770, $directory;
start_fails($node, qr/FATAL:  persistent cache directory "\Q$directory\E" has invalid permissions/, 'required, and a directory that will not do');
chmod 0700, $directory;
rename $pool, "$pool.save";
make_file($pool, 'x' x 9000);
start_fails($node, qr/FATAL:  file "\Q$pool\E" is not a persistent cache pool/, 'required, and not a pool');
rename "$pool.save", $pool;
set('pcache.directory', "''");
start_fails($node, qr/FATAL:  "pcache.directory" is not set/, 'required, and no directory');
set('pcache.directory', "'$directory'");
is(start_and_compare($node, 'required, and a pool', right => $right)->{start}, 'warm', 'required, and a pool: warm, whatever was between');
warm_restart($node, 'at last');

$node->stop;
done_testing();
