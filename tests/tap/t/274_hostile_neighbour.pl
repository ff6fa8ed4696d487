
# Copyright (c) 2026, the persistent-cache developers

# What is in the pool's place, or could be put there by another user, but is no
# pool of ours: server and pg_pcache refuse it, say what to do, and leave it as
# it is.  Nothing is lost by that: mended, the next start is warm.
#
# tests/pool-attack has the other users.

use strict;
use warnings FATAL => 'all';

use File::Copy qw(copy);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'root owns everything' if $> == 0;

my $top = pool_root() . '/top';
mkdir $top, 0755 or die $!;
my $dir = "$top/pool";
my $created = qr/^the pool was created by this start$/;
my $node = new_node('main', directory => $dir, init_pool => 0, conf => "pcache.required = on\n");
my $pool = pool_file($node);
my ($offset, $valid);

# Configuration is enough for a pool that nobody else can read.
$node->start;
is((stat $pool)[2] & 07777, 0600, 'mode of a new pool');
is((stat $dir)[2] & 07777, 0700, 'mode of a new directory');
load_data($node);
my $expected = checksums($node);
$valid = warm_up($node);
$node->stop;

# Larger than a superblock, and of some worth.
my $precious = pool_root() . '/precious';
my $worth = slurp_file($node->data_dir . '/global/pg_control') x 4;
append_to_file($precious, $worth);
chmod 0600, $precious;

# All that there is, by name, kind, owner, mode, size and time.
sub listing
{
	return join '', map { join(' ', $_, (lstat $_)[ 1 .. 5, 7, 9 ]) . "\n" }
	  map { ($_, glob("$_/*")) } $top, glob("$top/*");
}

# Server and pg_pcache say the same, and change nothing.
sub all_refuse
{
	my ($message, $name, @verbs) = @_;
	my $before = listing();

	@verbs = ([qw(verify)], [qw(status)], [qw(rebuild)], [qw(init --force)]) if !@verbs;
	for my $verb (@verbs)
	{
		my ($rc, $out, $err) = pcache($node, @$verb);

		is($rc, 1, "$name: pg_pcache $verb->[0] fails");
		like($err, $message, "$name: pg_pcache $verb->[0] says why");
		like($err, qr/hint: /, "$name: pg_pcache $verb->[0] says what to do");
	}
	start_fails($node, qr/FATAL:  $message.*\n.*HINT:  \S/, $name);
	is(slurp_file($precious), $worth, "$name: the precious file is as it was");
	is(listing(), $before, "$name: nothing was changed");
	return;
}

sub is_mended
{
	my ($name) = @_;

	is(verify_json($node)->{rc}, 0, "$name: pg_pcache verify says warm");
	$offset = log_offset($node);
	$node->start;
	is_warm($node, $offset, $valid, $name);
	is(checksums($node), $expected, "$name: contents are right");
	$valid = warm_up($node);
	$node->stop;
	return;
}

# ------------------------------------------------------------ the pool's place
my $not_regular = qr/persistent cache pool "\S+\/pool" is not a regular file/;
my $has_links = qr/persistent cache pool "\S+\/pool" is the same file as another one: it has 2 links/;

rename $pool, "$pool.away" or die $!;
system('mkfifo', '-m', '600', $pool) == 0 or die;
all_refuse($not_regular, 'a named pipe');
unlink $pool;
for my $to ($precious, "$pool.away", "$top/nowhere")
{
	symlink $to, $pool or die $!;
	all_refuse($not_regular, 'a symbolic link to ' . $to =~ s/.*\///r);
	unlink $pool;
}
link $precious, $pool or die $!;
all_refuse($has_links, 'a hard link to a file of ours');
unlink $pool;
rename "$pool.away", $pool or die $!;
link $pool, pool_root() . '/linked' or die $!;
all_refuse($has_links, 'a hard link to a pool');
unlink pool_root() . '/linked';
is((pcache($node, 'init', '--force'))[0], 0, 'pg_pcache init --force, with one name again');

# A file without our magic is somebody's file; one that starts with it is a pool.
copy($precious, $pool) or die $!;
all_refuse(qr/file "\S+\/pool" is not a persistent cache pool/, 'a file that is no pool',
	[qw(verify)], [qw(rebuild)], [qw(init --force)]);
is(slurp_file($pool), $worth, 'a file that is no pool: it is as it was');
write_bytes($pool, 0, 'PGPCACHE');
is(verify_json($node)->{rc}, 2, 'a damaged pool: pg_pcache verify says cold');
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/./, 'a damaged pool');
is(checksums($node), $expected, 'a damaged pool: contents are right');
$valid = warm_up($node);
$node->stop;
is_mended('a damaged pool, then a clean stop');

# ------------------------------------------------------------ directories
my $above = qr/other users can replace the persistent cache, because they can change directory "\Q$top\E"/;

for my $case ((map { [ $dir, $_, qr/persistent cache directory "\Q$dir\E" has invalid permissions/ ] } 0777, 01777, 0770, 0755, 0701),
	map { [ $top, $_, $above ] } 0777, 0775, 0757)
{
	my ($path, $mode, $message) = @$case;
	my $old = (stat $path)[2] & 07777;

	chmod $mode, $path or die $!;
	all_refuse($message, sprintf('%s with mode %04o', $path eq $dir ? 'the directory' : 'the one above', $mode), [qw(verify)], [qw(init --force)]);
	chmod $old, $path or die $!;
}
chmod 0750, $dir or die $!;
chmod 0640, $pool or die $!;
is_mended('the directory with mode 0750, and the pool with 0640');
is((stat $dir)[2] & 07777, 0700, 'the group has lost the directory');
is((stat $pool)[2] & 07777, 0600, 'the group has lost the pool');
chmod 01777, $top or die $!;
is_mended('the one above with mode 1777');
chmod 0755, $top or die $!;

# A way there that others can change.
my $open = pool_root() . '/open';
mkdir $open or die $!;
chmod 0777, $open or die $!;
symlink $dir, "$open/link" or die $!;
set_directory($node, "$open/link");
all_refuse(qr/other users can replace the persistent cache, because they can change directory "\Q$open\E"/, 'a link that others can change',
	[qw(verify)], [qw(rebuild)], [qw(init --force)]);
set_directory($node, $dir);

# Nothing is made below it, either, as after a reboot or by pg_pcache init.
rename $dir, "$dir.away" or die $!;
chmod 0777, $top or die $!;
all_refuse($above, 'the directory is lost', [qw(verify)], [qw(init --force)]);
chmod 0755, $top or die $!;
rename "$dir.away", $dir or die $!;

# What is above PGDATA is not ours to judge.
my $mode = (stat $node->basedir)[2] & 07777;
chmod 0777, $node->basedir or die $!;
is_mended('others can write above PGDATA');
chmod $mode, $node->basedir or die $!;

# ------------------------------------------------------------ leftovers
# The pool is lost, as in a reboot; what has the name of the new one is in the way.
unlink $pool;
for my $case (
	[ 'a symbolic link', sub { symlink $precious, "$pool.tmp" } ],
	[ 'a hard link', sub { link $precious, "$pool.tmp" } ],
	[ 'a named pipe', sub { system('mkfifo', '-m', '600', "$pool.tmp") == 0 } ],
	[ 'an open file', sub { append_to_file("$pool.tmp", 'x'); chmod 0666, "$pool.tmp" } ])
{
	my ($name, $make) = @$case;

	$make->() or die $!;
	all_refuse(qr/persistent cache pool "\S+\/pool\.tmp" (is not a regular file|is the same file as another one|has invalid permissions)/,
		"$name in place of the new pool", [qw(init --force)]);
	unlink "$pool.tmp" or die $!;
}
append_to_file("$pool.tmp", 'half a pool');
chmod 0600, "$pool.tmp";
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, $created, 'a leftover');
ok(!-e "$pool.tmp", 'a leftover is removed');
is(checksums($node), $expected, 'a leftover: contents are right');
$node->stop;
is(slurp_file($precious), $worth, 'the precious file is as it was');

done_testing();
