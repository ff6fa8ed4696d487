
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
	my $asked = $blocks // 'nothing';
	my $hint = qr/The pool has room for 3072 blocks, and "pcache.size" asks for $asked\.  Run "pg_pcache init --force" while the server is down to make a new one, with which the next start is cold\./;
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
is((pcache($node, 'init', '--force'))[0], 0, 'the command of the hint');
is(start_and_compare($node, 'a new pool')->{start}, 'cold', '... and the start is cold once');
warm_pages($node);
$node->stop;
is(verify_json($node)->{hint}, undef, '... nothing to tell any more');
$node->append_conf('postgresql.conf', 'pcache.size = 30MB');
like((pcache($node, 'status'))[2], qr/The pool has room for 6144 blocks, and "pcache.size" asks for 3840\.  Run "pg_pcache init --force"/, 'a pool that is larger');
$node->append_conf('postgresql.conf', 'pcache.size = 0');

# ---------------------------------------------------------------- a pool of 1.0.0
# The file of an older format has as many blocks, and less beside them.
is((pcache($node, 'init', '--force', '--size=24MB'))[0], 0, 'a pool that just fits');
patch_superblock($pool, format_version => 2);
truncate $pool, (-s $pool) - 2 * 1024 * 1024 or die;
my ($rc, $out, $err) = pcache($node, 'rebuild');
is($rc, 1, 'a pool of an older format is not repaired');
like($err, qr/cannot be repaired\n.*detail: .*format.*\n.*hint: .*init --force/, '... and told');
is(start_and_compare($node, 'such a pool')->{start}, 'cold', '... but the start uses it');
warm_pages($node);
$node->stop;
is(start_and_compare($node, 'such a pool')->{start}, 'warm', '... so that the next one is warm');
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

# ---------------------------------------------------------------- huge pages
# With the pool the server needs none, and without it as many as huge_pages = on says.
my $files = PostgreSQL::Test::Utils::tempdir();

sub machine_has
{
	my ($n) = @_;
	my $sysfs = "$files/sys/kernel/mm/hugepages/hugepages-2048kB";

	system_or_bail('mkdir', '-p', $sysfs, "$files/proc");
	for my $file ([ nr => $n ], [ free => $n ], [ resv => 0 ], [ nr_overcommit => 0 ], [ surplus => 0 ])
	{
		unlink "$sysfs/$file->[0]_hugepages";
		append_to_file("$sysfs/$file->[0]_hugepages", "$file->[1]\n");
	}
	unlink "$files/proc/meminfo";
	append_to_file("$files/proc/meminfo", "MemAvailable: 9000000 kB\nHugepagesize: 2048 kB\n");
	return;
}

sub on_it { my ($code, %more) = @_; return on_machine({ MACHINE_FILES => $files, %more }, $code) }

my $reserved = qr/persistent cache: \d+ MB are reserved in huge pages that nobody uses, as shared buffers lie in the pool\n[^\n]*HINT:  Put the pool on hugetlbfs/;
my $small = qr/WARNING:  "huge_pages" is "on", but shared buffers are not all in huge pages, because persistent cache pool "\Q$pool\E" is not\n[^\n]*HINT:  [^\n]*huge=within_size/;

# How a start is there, and what the log says once the worker has told all.
sub log_there
{
	my (%more) = @_;
	my $offset = log_offset($node);

	on_it(sub { $node->start }, %more);
	$node->wait_for_log(qr/persistent cache: the pool has/, $offset);
	# it ends when it has told all
	$node->stop;
	return slurp_file($node->logfile, $offset);
}

$node->append_conf('postgresql.conf', 'huge_pages = on');
$node->start;
warm_pages($node);
$node->stop;
SKIP:
{
	skip 'this machine has huge pages', 9 if slurp_file('/proc/meminfo') !~ /^HugePages_Total:\s+0$/m || slurp_file('/proc/sys/vm/nr_overcommit_hugepages') != 0;
	my $lacking = qr/"huge_pages" is "on", which takes \d\d huge pages of 2048 kB then, and there are 0/;
	my $hint = qr/hint: Set "huge_pages" to "try", or reserve as many with vm\.nr_hugepages\./;
	my @check = pcache($node, 'check');

	is($check[0], 0, 'huge_pages = on, and there are none: check says that the start is warm');
	like($check[2], qr/warning: if the pool could not be used, the server would not start: $lacking\n[^\n]*$hint/, '... and what if the pool could not be used');
	is(start_and_compare($node, 'huge_pages = on, and there are none', right => oracle($node, options => '-c huge_pages=off'))->{start}, 'warm', '... which it is');
	@check = pcache($node, 'check');
	is($check[0], 0, '... and check while it runs');
	like($check[2], qr/warning: if the pool could not be used, the server would not start: $lacking/, '... says the same');
	$node->stop;
	chmod 0755, $directory;
	@check = pcache($node, 'check');
	is($check[0], 1, 'the pool cannot be used: check says that there is no start');
	like($check[2], qr/error: persistent cache directory "[^"]*" has invalid permissions\n[^\n]*detail: Without the pool the server does not start: $lacking\.\n[^\n]*hint: Permissions should be [^\n]*\n[^\n]*$hint/, '... and both reasons');
	my $offset = log_offset($node);
	is($node->start(fail_ok => 1), 0, '... and there is none');
	like(slurp_file($node->logfile, $offset), qr/FATAL:  could not map anonymous shared memory/, '... for that reason');
	chmod 0700, $directory;
}
machine_has(1000);
is((on_it(sub { pcache($node, 'check') }))[2], '', 'there are enough: no warning');
chmod 0755, $directory;
is((on_it(sub { pcache($node, 'check') }))[0], 2, '... and a pool that cannot be used is a cold start');
chmod 0700, $directory;

# Who has asked for huge pages, or reserved them, is told where shared buffers are.
like(log_there(), $reserved, 'huge pages are reserved that nobody uses: the log says so');
machine_has(0);
$log = log_there(MACHINE_NO_COLLAPSE => 1);
like($log, $small, 'a pool in small pages, and huge_pages = on: the log says so');
unlike($log, $reserved, '... and nothing of pages that are not reserved');
$node->append_conf('postgresql.conf', 'huge_pages = try');
unlike(log_there(MACHINE_NO_COLLAPSE => 1), $small, 'huge_pages = try: nothing');
machine_has(1000);
$node->append_conf('postgresql.conf', 'huge_pages = off');
unlike(log_there(), $reserved, 'huge_pages = off: nothing');

done_testing();
