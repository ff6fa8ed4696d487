
# Copyright (c) 2026, the persistent-cache developers

# What an administrator trips over: the message names what is wrong, and the hint says what
# to do.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main');
my $pool = pool_file($node);
my $directory = pool_dir($node);
my $user = getpwuid($>) // $>;
my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
my $log;

$node->start;
load_tables($node);
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
warm_pages($node);
$node->stop;

# ---------------------------------------------------------------- the wrong owner
SKIP:
{
	skip 'root may use each directory', 14 if $> == 0;
	for my $case ([ '/etc', qr/HINT:  Is its file system mounted\?  [^\n]* give the directory to user \Q$user\E with chown\./ ],
		[ '/proc', qr/HINT:  A file system is mounted there\.  Mount a tmpfs or hugetlbfs with the option uid=\Q$user\E, / ])
	{
		my ($place, $hint) = @$case;
		my $wrong = qr/persistent cache directory "$place" has wrong ownership: it belongs to user root, and this process to user \Q$user\E/;

		$node->append_conf('postgresql.conf', "pcache.directory = '$place'");
		like((pcache($node, 'check'))[1], $wrong, "$place: check says whose it is");
		$log = start_without($node, $wrong, $place);
		like($log, $hint, "$place: the hint is about the cause");
		$node->stop;
	}
}
$node->append_conf('postgresql.conf', "pcache.directory = '$directory'");

# ---------------------------------------------------------------- the size of the pool
# pcache.size is for new pools: whoever sets it later is told so.
$node->start;
warm_pages($node);
$node->stop;
for my $case ([ '48MB', 6144 ], [ '30000kB', 3750 ], [ '0', undef ], [ '8MB', undef ])
{
	my ($size, $blocks) = @$case;
	my ($verdict, $out, $err, $start);
	my $wanted = $size =~ s/(\d+)(..)/--resize=$1$2/r;
	my $asked = $blocks // 'nothing';
	my $hint = qr/The pool has room for 3072 blocks, and "pcache.size" asks for $asked\.  Run "pg_pcache rebuild \Q$wanted\E"/;
	my $message = qr/"pcache.size" has no effect on persistent cache pool "\Q$pool\E"/;

	$node->append_conf('postgresql.conf', "pcache.size = $size");
	$verdict = verify_json($node);
	(undef, $out, $err) = pcache($node, 'status');
	$start = start_and_compare($node, "pcache.size = $size");
	if (defined $blocks)
	{
		is($verdict->{rc}, 0, "pcache.size = $size: verify says that the next start is warm");
		is($start->{start}, 'warm', '... which it is');
		like($verdict->{hint} // '', $hint, '... and that the pool has another size');
		like($err, qr/warning: $message.*\n.*hint: $hint/, '... and status');
		like($start->{log}, qr/LOG:  $message[^\n]*\n[^\n]*HINT:  $hint/, '... and the log');
		like($node->safe_psql('postgres', q{SELECT coalesce(hint, '') FROM pg_pcache_next_start()}), $hint, '... and the view');
		like((pcache($node, 'check'))[1], qr/^next start: WARM.*\nhint: $hint/, '... and check');
	}
	else
	{
		is($verdict->{hint}, undef, "pcache.size = $size: no hint");
		is($err, '', '... and no warning');
		unlike($start->{log}, $message, '... nor in the log');
	}
	$node->stop;
}

# the command of the hint does it
$node->append_conf('postgresql.conf', 'pcache.size = 48MB');
is((pcache($node, 'rebuild', '--resize=48MB'))[0], 0, 'the command of the hint: warm');
is(verify_json($node)->{hint}, undef, '... nothing to tell any more');
$node->append_conf('postgresql.conf', 'pcache.size = 30MB');
like(verify_json($node)->{hint} // '', qr/The pool has room for 6144 blocks, and "pcache.size" asks for 3840\.  Run "pg_pcache rebuild --resize=30MB"/, 'a pool that is larger');
$node->append_conf('postgresql.conf', 'pcache.size = 0');

# ---------------------------------------------------------------- a pool of 1.0.0
# The file of an older format has as many blocks, and less beside them.
is((pcache($node, 'rebuild', '--resize=24MB'))[0], 0, 'a pool that just fits');
patch_superblock($pool, format_version => 3);
truncate $pool, (-s $pool) - 2 * 1024 * 1024 or die;
my ($rc, $out, $err) = pcache($node, 'rebuild', '--reset', '--warm-from-files');
is($rc, 0, 'a pool of an older format is filled: warm') or diag($err);
like($out, qr/^capacity: +3072 blocks/m, '... with room for shared_buffers');
is(start_and_compare($node, 'such a pool')->{start}, 'warm', '... and the start is');
like((pcache($node, 'status'))[1], qr/^listed pages: +\d+\ndamaged entries: +0$/m, '... and status tells of pages that are listed');
$node->stop;

# ---------------------------------------------------------------- damaged, or not a pool
for my $case ([ 'saved_pages', 'checksum is wrong' ], [ 'magic', 'magic number is wrong' ])
{
	my ($name, $wrong) = @$case;
	my $hint = qr/Both superblocks of file "\Q$pool\E" are damaged, so a start makes an empty pool of it\.  If it belongs to another cluster, set "pcache\.directory"/;
	my ($status, $verdict);

	damage_superblock($pool, $name, 0, COPY_OFFSET);
	$verdict = verify_json($node);
	is($verdict->{detail}, $wrong, "$name damaged: verify");
	like($verdict->{hint} // '', $hint, '... has a hint');
	like((pcache($node, 'status'))[2], qr/error: both superblocks .* are damaged\n.*detail: [^\n]*$wrong[^\n]*\n[^\n]*hint: $hint/, '... and status');
	$log = cold_start($node, qr/^$wrong$/, "$name damaged")->{log};
	like($log, qr/starting cold: $wrong\n[^\n]*HINT:  $hint/, '... and the log');
	$node->stop;
}
rename $pool, "$pool.save" or die;
append_to_file($pool, 'x' x 20000);
chmod 0600, $pool;
like((pcache($node, 'status'))[2], qr/error: file "\Q$pool\E" is not a persistent cache pool\n[^\n]*hint: Move it away, or choose another directory/, 'not a pool: status says so, and what to do');
rename "$pool.save", $pool or die;

done_testing();
