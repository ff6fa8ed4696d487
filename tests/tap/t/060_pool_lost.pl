
# Copyright (c) 2026, the persistent-cache developers

# A pool on tmpfs that is gone, as after a reboot of the host, is created
# again, but never on another file system than it was on.

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree);
use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

# tmpfs, some directories deep
my $top = pool_root() . '/some';
my $node = new_node('memory', directory => "$top/where/deep");
my ($offset, $expected, $verdict, $outcome);

is(status_json($node)->{file_system}, 'tmpfs', 'kind of the pool on tmpfs');
$node->start;
load_data($node);
$expected = checksums($node);
restart_warm($node, 'before');

# Gone with all its directories, as after a reboot of the host.
for my $case ([ 'pool gone', sub { unlink pool_file($node) } ],
	[ 'directories gone', sub { remove_tree($top) } ],
	[ 'gone after a crash of the host', sub { remove_tree($top) }, 'immediate' ])
{
	my ($name, $lose, $mode) = @$case;
	my $capacity = status_json($node)->{capacity};

	warm_up($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->stop($mode // 'fast');
	$lose->();
	$verdict = verify_json($node);
	is($verdict->{rc}, 2, "$name: pg_pcache verify says cold");
	is($verdict->{reason}, 'new', "$name: pg_pcache verify says why");
	ok(!-e pool_file($node), "$name: pg_pcache verify does not create it");
	$offset = log_offset($node);
	$node->start;
	$outcome = is_cold($node, $offset,
		qr/^the pool was lost with its tmpfs file system, and was created again$/, $name);
	like($outcome->{log},
		qr/LOG:  created persistent cache pool "\Q@{[ pool_file($node) ]}\E" again, for $capacity blocks/,
		"$name: a LOG line tells");
	is(status_json($node)->{capacity}, $capacity, "$name: same size as before");
	is((stat pool_file($node))[2] & 07777, 0600, "$name: mode of the new pool");
	# unlogged tables do not survive a crash
	$expected =~ s/^t_unlogged.*$/t_unlogged|0|0/m if defined $mode;
	is(checksums($node), $expected, "$name: contents are right");
	restart_warm($node, "$name, then a clean stop");
	is(checksums($node), $expected, "$name, then a clean stop: contents are right");
}

# The file system of the directory is not the one it was: not mounted.  (The
# record is rewritten, as unmounting takes root.)
$node->stop;
my $state = slurp_file(state_file($node));
my $disk = PostgreSQL::Test::Utils::tempdir();
write_state($node, $state, directory => "$disk/not/mounted");
remove_tree($top);
set_directory($node, "$disk/not/mounted");
start_fails(
	$node,
	qr/FATAL:  there is no persistent cache pool in directory "\Q$disk\E\/not\/mounted", and "\Q$disk\E" is on an ordinary file system\n.*HINT:  Is the file system for the pool mounted\?  On an ordinary file system, only "pg_pcache init" creates a pool\./,
	'directory not on tmpfs any more');
ok(!-e "$disk/not", 'directory not on tmpfs any more: nothing was created');
my ($rc, undef, $err) = pcache($node, 'verify');
is($rc, 1, 'directory not on tmpfs any more: pg_pcache verify fails');
like($err, qr/and "\Q$disk\E" is on an ordinary file system/,
	'directory not on tmpfs any more: pg_pcache verify says why');
set_directory($node, pool_dir($node));
write_state($node, $state);
$node->start;
restart_warm($node, 'mounted again');

$node->stop;
done_testing();
