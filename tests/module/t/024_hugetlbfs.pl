
# Copyright (c) 2026, the persistent-cache developers

# A pool on hugetlbfs, where huge pages, the mount or a control group may have too few: the start,
# verify, check and init --dry-run say the same of them, and before anything is done.  And init on
# a tmpfs for which there is no memory, and status of a server without its pool.

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Path qw(remove_tree);
use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main', conf => "huge_pages = try\n");
my $pool = pool_file($node);
my $directory = pool_dir($node);
my $files = PostgreSQL::Test::Utils::tempdir();
# blocks of 512 bytes, in huge pages
sub pages_of { return (stat $pool)[12] / 4096 }

# A machine: pages that are free; promised to somebody, of these; that the kernel may add, and
# how many of them it has added.  mount is what a mount's limit is and what that leaves, and kept
# is its min_size.  Groups are files of control groups, in MB.
my $mount;

sub machine
{
	my ($free, %m) = @_;
	my $device = (stat(-e $directory ? $directory : $directory =~ s{/[^/]*$}{}r))[0];
	my %pages = (free => $free, resv => $m{promised} // 0, nr_overcommit => $m{overcommit} // 0, surplus => $m{surplus} // 0);

	remove_tree($files);
	for my $name (keys %pages)
	{
		machine_file($files, "/sys/kernel/mm/hugepages/hugepages-2048kB/${name}_hugepages", "$pages{$name}\n");
	}
	machine_file($files, '/proc/self/mountinfo', sprintf("61 43 %d:%d / %s rw,relatime - hugetlbfs none rw,pagesize=2M%s\n",
			$device >> 8 & 0xfff, $device & 0xff | $device >> 12 & 0xfff00, abs_path('/'),
			$m{kept} ? ',min_size=' . ($m{kept} << 21) : '')) if defined $m{kept};
	machine_file($files, '/proc/self/cgroup', "7:hugetlb:/old\n0::/unit/server\n");
	machine_file($files, "/sys/fs/cgroup/$_", ($m{groups}{$_} << 20) . "\n") for keys %{ $m{groups} // {} };
	$mount = $m{mount} // '0 0';
	return;
}

sub there { my ($code) = @_; return on_machine({ MACHINE_FILES => $files, MACHINE_HUGETLBFS => $mount }, $code) }

my $more = qr/hint: +Reserve more huge pages with vm\.nr_hugepages, or choose a smaller size\./i;
my $raise = qr/hint: +Raise the limit of huge pages of the unit or container, or choose a smaller size\./i;
my $smaller = qr/hint: +Choose a smaller size, or another directory\./i;

# There is no pool: will there be one?  Of the server that is down, without starting it.
sub foretold
{
	my ($name, $available, $hint) = @_;
	my $why = defined $available ? qr/not enough space in "[^"]*" for the persistent cache pool: \d+ MB needed, $available MB available\n[^\n]*$hint/ : qr/there is no pool yet, and the server will create it/;
	my ($rc, $out, $err) = there(sub { pcache($node, 'verify') });

	is($rc, 2, "$name: verify");
	like($out . $err, $why, '... says why');
	($rc, $out, $err) = there(sub { pcache($node, 'init', '--dry-run') });
	is($rc, defined $available ? 1 : 0, '... and so does init --dry-run');
	like($err, $why, '... for the same reason') if defined $available;
	return;
}

$node->start;
load_tables($node);
$node->stop;
my $needed = pages_of();
note("the pool has $needed huge pages");
unlink $pool or die;

# ---------------------------------------------------------------- what there is
machine($needed);
foretold('as many pages as it takes');
machine($needed - 1);
foretold('one page less', 2 * $needed - 2, $more);
machine($needed + 10, promised => 10);
foretold('others have asked for the rest');
machine($needed + 10, promised => 11);
foretold('others have asked for more', 2 * $needed - 2, $more);
machine(10, overcommit => $needed + 3, surplus => 13);
foretold('the kernel may add the rest');
machine(10, overcommit => $needed + 2, surplus => 13);
foretold('the kernel may add less', 2 * $needed - 2, $more);

# ---------------------------------------------------------------- the mount
machine(100, mount => "$needed $needed");
foretold('a limit of the mount');
machine(100, mount => ($needed + 5) . ' ' . ($needed - 1));
foretold('a mount that is used', 2 * $needed - 2, $smaller);
machine($needed, promised => $needed, kept => $needed);
foretold('pages are kept for the mount');
machine($needed, promised => $needed, kept => $needed, mount => '-1 -1');
foretold('the same without a limit');
machine($needed, promised => $needed, kept => $needed - 1);
foretold('one is not', 2 * $needed - 2, $more);
machine($needed + 10, promised => $needed, kept => $needed, mount => '100 90');
foretold('others on the mount have some of them, and there are more');
machine($needed + 9, promised => $needed, kept => $needed, mount => '100 90');
foretold('one less', 2 * $needed - 2, $more);

# ---------------------------------------------------------------- control groups
machine(100, groups => { 'unit/hugetlb.2MB.max' => 2 * $needed + 8, 'unit/hugetlb.2MB.current' => 8 });
foretold('a control group');
machine(100, groups => { 'unit/hugetlb.2MB.max' => 2 * $needed + 6, 'unit/hugetlb.2MB.current' => 8 });
foretold('a control group with too little', 2 * $needed - 2, $raise);
machine(100, groups => { 'unit/server/hugetlb.2MB.rsvd.max' => 2 * $needed - 2, 'unit/server/hugetlb.2MB.rsvd.current' => 0 });
foretold('one that may reserve too little', 2 * $needed - 2, $raise);
machine(100, groups => { 'hugetlb/old/hugetlb.2MB.limit_in_bytes' => 2 * $needed, 'hugetlb/old/hugetlb.2MB.usage_in_bytes' => 2 });
foretold('one of version 1', 2 * $needed - 2, $raise);
machine(100, groups => { 'unit/hugetlb.1GB.max' => 0, 'unit/hugetlb.1GB.current' => 0 });
foretold('pages of another size');

# ---------------------------------------------------------------- the start
# It knows before shared memory is made, so huge_pages is what it is without the library.
my $offset = log_offset($node);
my $off = qr/persistent cache: "huge_pages" is turned off/;
my $log;
machine($needed - 1);
$log = there(sub { start_without($node, qr/not enough space in "[^"]*" for the persistent cache pool/, 'one page less') });
like($log, $more, '... with the hint');
unlike($log, $off, '... and huge_pages is not turned off');
ok(!-e $pool, '... and nothing is made');

# While it runs, the pages of its own segment count: a stop gives them back.
my $maps = "/proc/$node->{_pid}/maps";
my $segment = "7f0000000000-7f0000200000 rw-s 00000000 00:0f 12 %s (deleted)\n";
sub checked { return (there(sub { pcache($node, 'check') }))[1] }
like(checked(), qr/not enough space/, 'while it runs: check');
machine_file($files, $maps, sprintf($segment, '/dev/zero'));
like(checked(), qr/not enough space/, '... the segment is in small pages');
machine_file($files, $maps, sprintf($segment, '/anon_hugepage'));
like(checked(), qr/the server will create it/, '... the segment is in huge pages');
machine_file($files, "/proc/$node->{_pid}/cgroup", "0::/unit\n");
machine_file($files, '/sys/fs/cgroup/unit/hugetlb.2MB.max', 2 * $needed - 4 << 20);
machine_file($files, '/sys/fs/cgroup/unit/hugetlb.2MB.current', 0);
like(checked(), qr/not enough space.*\n.*Raise the limit of huge pages/, '... and its control group has a limit');

machine($needed);
$node->stop;
my $outcome = there(sub { start_and_compare($node, 'as many pages as it takes') });
is($outcome->{reason}, 'the pool was created by this start', '... and there is a pool');
like($outcome->{log}, $off, '... and huge_pages is turned off');
is(pages_of(), $needed, '... all of which is allocated');
$node->stop;
is(there(sub { start_and_compare($node, 'the pool that was saved') })->{start}, 'warm', '... which is warm');
$node->stop;

# The kernel does not tell which huge page is missing, so none is believed.
my $size = -s $pool;
truncate($pool, $size - (2 << 20)) && truncate($pool, $size) or die "truncate: $!";
is(pages_of(), $needed - 1, 'the pool has a hole');
machine(1);
is((there(sub { pcache($node, 'verify') }))[0], 2, '... verify');
$outcome = there(sub { start_and_compare($node, 'a hole') });
like($outcome->{reason}, qr/^the pool file has a hole where it may have said that its pages cannot be kept$/, '... no page is kept');
is(pages_of(), $needed, '... and it is allocated');
$node->stop;

# ---------------------------------------------------------------- a larger one
$node->append_conf('postgresql.conf', 'shared_buffers = 48MB');
machine(5);
my ($rc, $out, $err) = there(sub { pcache($node, 'verify') });
is($rc, 2, 'too few pages for a larger pool: verify');
like($out, qr/is too small for "shared_buffers".*There is no room to make it larger: the file needs \d+ MB\.  Reserve more huge pages/s, '... says why');
($rc, $out, $err) = there(sub { pcache($node, 'init', '--dry-run', '--force') });
is($rc, 1, '... and init --dry-run --force fails');
like($err, $more, '... for that reason');
machine(100, groups => { 'unit/hugetlb.2MB.max' => 10, 'unit/hugetlb.2MB.current' => 0 });
$log = there(sub { start_without($node, qr/is too small for "shared_buffers"/, 'a control group') });
like($log, qr/There is no room to make it larger: the file needs \d+ MB\.  Raise the limit of huge pages/, '... has no room for it');
unlike($log, $off, '... and huge_pages is not turned off');
like((there(sub { pcache($node, 'status') }))[1], qr/^server: +running without this pool \(PID \d+\)$/m, '... and status says so');
is(status_json($node)->{server_uses_pool}, 0, '... in JSON as well');
$node->stop;
# an unused pool has given its pages back
machine(100);
like((there(sub { start_and_compare($node, 'enough pages') }))->{log}, qr/persistent cache: starting cold/, '... are enough for a larger pool');
like((there(sub { pcache($node, 'status') }))[1], qr/^server: +running \(PID \d+\)$/m, '... which the server uses');
is(status_json($node)->{server_uses_pool}, 1, '... in JSON as well');
$node->stop;
is(status_json($node)->{server_uses_pool}, undef, 'no server: it is unknown');

# in place of the pool that is there
$node->append_conf('postgresql.conf', 'shared_buffers = 40MB');
machine(0);
is((there(sub { pcache($node, 'init', '--dry-run', '--force') }))[0], 0, 'no pages for two pools: init --force takes those of the old one');

# ---------------------------------------------------------------- memory of a tmpfs
# init allocates all of it, for which the kernel would kill somebody.
sub on_tmpfs { my @options = @_; return on_machine({ MACHINE_FILES => $files }, sub { pcache($node, 'init', @options) }) }
unlink $pool or die;
machine(0, groups => { 'unit/memory.max' => 130, 'unit/memory.current' => 0 });
($rc, $out, $err) = on_tmpfs('--dry-run');
is($rc, 1, 'a control group that has no memory for a pool on tmpfs: init --dry-run');
like($err, qr/error: the pool lacks \d+ MB, and the control group may use 130 MB more[^\n]*\n[^\n]*hint: Raise the limit of the unit or container by \d+ MB/, '... says so');
is((on_tmpfs())[0], 1, '... and so does init');
ok(!-e $pool, '... which makes nothing');
machine(0, groups => { 'unit/memory.max' => 200, 'unit/memory.current' => 0 });
is((on_tmpfs())[0], 0, '... and there is memory');
machine(0, groups => { 'unit/memory.max' => 200, 'unit/memory.current' => 60 });
($rc, $out, $err) = on_tmpfs('--force');
is($rc, 0, '... but not for two: the old one is made the new one') or diag($err);

done_testing();
