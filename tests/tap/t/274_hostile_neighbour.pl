
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
my $node = new_node('main', directory => $dir);
my $pool = pool_file($node);
my $data = $node->data_dir;

$node->start;
load_data($node);
my $expected = checksums($node);
my $valid = warm_up($node);
$node->stop;
my $record = slurp_file(state_file($node));

# As large as a superblock and more, and of some worth.
my $precious = pool_root() . '/precious';
my $worth = slurp_file("$data/global/pg_control") x 4;
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

	@verbs = ([qw(verify)], [qw(status)], [qw(rebuild --reset --force)], [ qw(init --force --directory), $dir ])
	  if !@verbs;
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
	my $offset = log_offset($node);

	is(verify_json($node)->{rc}, 0, "$name: pg_pcache verify says warm");
	$node->start;
	is_warm($node, $offset, $valid, $name);
	is(checksums($node), $expected, "$name: contents are right");
	$valid = warm_up($node);
	$node->stop;
	return;
}

# ------------------------------------------------------------ the pool's place

my $not_regular = qr/persistent cache pool "\S+\/pool" is not a regular file/;

rename $pool, "$pool.away" or die $!;
system('mkfifo', '-m', '600', $pool) == 0 or die;
all_refuse($not_regular, 'a named pipe');
unlink $pool;

symlink $precious, $pool or die $!;
all_refuse($not_regular, 'a symbolic link to a file of ours');
unlink $pool;
symlink "$pool.away", $pool or die $!;
all_refuse($not_regular, 'a symbolic link to the pool');
unlink $pool;
symlink "$top/nowhere", $pool or die $!;
all_refuse($not_regular, 'a symbolic link to nothing');
unlink $pool;

link $precious, $pool or die $!;
all_refuse(qr/persistent cache pool "\S+\/pool" is the same file as another one: it has 2 links/,
	'a hard link to a file of ours');
unlink $pool;

# A hard link to another pool is none of ours, either.
rename "$pool.away", $pool or die $!;
link $pool, pool_root() . '/linked' or die $!;
all_refuse(qr/persistent cache pool "\S+\/pool" is the same file as another one: it has 2 links/,
	'a hard link to a pool');
unlink pool_root() . '/linked';

# But pg_pcache init --force, if it is killed, leaves the old pool two names.
link $pool, "$pool.old" or die $!;
is_mended('the pool as a killed pg_pcache init --force leaves it');
is((pcache($node, 'init', '--force', '--directory' => $dir))[0], 0, 'another pg_pcache init --force');
ok(!-e "$pool.old", 'another pg_pcache init --force leaves one name');
$node->start;
$valid = warm_up($node);
$node->stop;
$record = slurp_file(state_file($node));

# ------------------------------------------------------------ whose file it is

# Without a record, a file without our magic is somebody's file.
rename $pool, "$pool.away" or die $!;
copy($precious, $pool) or die $!;
chmod 0600, $pool;
unlink state_file($node);
all_refuse(qr/file "\S+\/pool" is not a persistent cache pool/, 'a file that is no pool',
	[qw(verify)], [qw(rebuild --reset --force)], [ qw(init --force --directory), $dir ]);
is(slurp_file($pool), $worth, 'a file that is no pool: it is as it was');

# So it is with a record of another place ...
write_state($node, $record, directory => "$top/elsewhere");
all_refuse(qr/file "\S+\/pool" is not a persistent cache pool/, 'a file that is no pool, recorded elsewhere',
	[qw(verify)], [qw(rebuild --reset --force)], [ qw(init --force --directory), $dir ]);
is(slurp_file($pool), $worth, 'a file that is no pool, recorded elsewhere: it is as it was');

# ... and a file that starts with our magic, or was recorded, is a pool.
for my $case ([ 'our magic', 'PGPCACHE', 0 ], [ 'recorded', 'NOMAGIC!', 1 ])
{
	my ($name, $magic, $recorded) = @$case;

	copy($precious, $pool) or die $!;
	write_bytes($pool, 0, $magic);
	if ($recorded) { write_state($node, $record) } else { unlink state_file($node) }
	my $offset = log_offset($node);
	is(verify_json($node)->{rc}, 2, "damaged, $name: pg_pcache verify says cold");
	$node->start;
	is_cold($node, $offset, qr/./, "damaged, $name");
	is(checksums($node), $expected, "damaged, $name: contents are right");
	$valid = warm_up($node);
	$node->stop;
	is_mended("damaged, $name, then a clean stop");
}
unlink "$pool.away";

# ------------------------------------------------------------ directories

sub refuse_mode
{
	my ($path, $mode, $message) = @_;
	my $name = sprintf '%s with mode %04o', $path eq $dir ? 'the directory' : 'the one above', $mode;
	my $old = (stat $path)[2] & 07777;

	chmod $mode, $path or die $!;
	all_refuse($message, $name);
	chmod $old, $path or die $!;
	return;
}
refuse_mode($dir, $_, qr/persistent cache directory "\Q$dir\E" has invalid permissions/)
  for 0777, 01777, 0770, 0755, 0701;
refuse_mode($top, $_,
	qr/other users can replace the persistent cache, because they can change directory "\Q$top\E"/)
  for 0777, 0775, 0757;
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
my $untrusted = qr/other users can replace the persistent cache, because they can change directory "\Q$open\E"/;
$node->append_conf('postgresql.conf', "persistent_cache_directory = '$open/link'");
all_refuse($untrusted, 'a link that others can change',
	[qw(verify)], [qw(rebuild --reset --force)], [ qw(init --force --directory), "$open/link" ]);
$node->adjust_conf('postgresql.conf', 'persistent_cache_directory', undef);
set_directory($node, undef);
symlink "$open/link", "$data/pg_pcache" or die $!;
all_refuse($untrusted, 'PGDATA/pg_pcache by way of a link that others can change',
	[qw(verify)], [qw(rebuild --reset --force)], [qw(init --force)]);
unlink "$data/pg_pcache" or die $!;
set_directory($node, $dir);

# Nothing is made below it, either, as after a reboot or by pg_pcache init.
rename $dir, "$dir.away" or die $!;
chmod 0777, $top or die $!;
all_refuse(qr/other users can replace the persistent cache, because they can change directory "\Q$top\E"/,
	'the directory is lost', [qw(verify)], [ qw(init --force --directory), $dir ]);
chmod 0755, $top or die $!;
rename "$dir.away", $dir or die $!;

# What is above PGDATA is not ours to judge if the pool is elsewhere.
my $above = $node->basedir;
my $mode = (stat $above)[2] & 07777;
chmod 0777, $above or die $!;
is_mended('others can write above PGDATA');
chmod $mode, $above or die $!;

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
	my ($rc, $err);

	$make->() or die $!;
	all_refuse(qr/persistent cache pool "\S+\/pool\.tmp" (is not a regular file|is the same file as another one|has invalid permissions)/,
		"$name in place of the new pool", [ qw(init --force --directory), $dir ]);
	unlink "$pool.tmp" or die $!;
}
append_to_file("$pool.tmp", 'half a pool');
chmod 0600, "$pool.tmp";
my $offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the pool was lost with its tmpfs file system, and was created again$/, 'a leftover');
ok(!-e "$pool.tmp", 'a leftover is removed');
is(checksums($node), $expected, 'a leftover: contents are right');

# ------------------------------------------------------------ foresight

my $sql = 'SELECT * FROM pg_pcache_next_start($$crash$$)';
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
chmod 0777, $top or die $!;
like($node->safe_psql('postgres', $sql), qr/other users can replace the persistent cache/,
	'pg_pcache_next_start() foresees it');
chmod 0755, $top or die $!;
unlike($node->safe_psql('postgres', $sql), qr/other users can replace/, 'and that it is mended');
$node->stop;
is(slurp_file($precious), $worth, 'the precious file is as it was');
done_testing();
