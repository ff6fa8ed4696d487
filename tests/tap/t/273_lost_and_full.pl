
# Copyright (c) 2026, the persistent-cache developers

# A pool was lost with its memory file system, and the new one is smaller or may not
# be written to.  If there is room for shared_buffers, the server starts with a new
# pool.  Otherwise a server that requires its pool does not start, and pg_pcache
# verify says why.  new_node() has persistent_cache_required on; 293_unavailable.pl
# is about servers that do not require theirs.

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = pool_root() . '/mount';
mkdir $top or die $!;
my $node = new_node('main', directory => "$top/some/where");
$node->start;
load_data($node);
my $expected = checksums($node);
$node->stop;
my $record = slurp_file(state_file($node));

# Both say no, with the same words.
sub both_refuse
{
	my ($message, $name) = @_;
	my ($rc, $out, $err) = pcache($node, 'verify');

	is($rc, 1, "$name: exit code of pg_pcache verify");
	like($err, $message, "$name: pg_pcache verify says why");
	like($err, qr/hint: /, "$name: pg_pcache verify says what to do");
	start_fails($node, qr/FATAL:  $message\n.*HINT: /, $name);
	ok(!-e "$top/some", "$name: nothing was created");
	return;
}

sub starts
{
	my ($name) = @_;
	my $verdict = verify_json($node);
	my $offset = log_offset($node);

	is("$verdict->{rc} $verdict->{reason}", '2 new', "$name: pg_pcache verify says cold");
	$node->start;
	is_cold($node, $offset, qr/^the pool was lost with its tmpfs file system, and was created again$/, $name);
	is(checksums($node), $expected, "$name: contents are right");
	$node->stop;
	return;
}

# twice as much as is free
my ($free_mb) = (run_command([ 'df', '-Pm', $top ]))[0] =~ /^\S+\s+\d+\s+\d+\s+(\d+)\s+\d+%/m;
my $blocks = 2 * $free_mb * 1024 / 8;

# The record asks for more than there is, as that of a larger host: what
# shared_buffers need will do.
remove_tree("$top/some");
write_state($node, $record, capacity => $blocks);
starts('no room for the former capacity');
is(status_json($node)->{capacity}, 4096, 'no room for the former capacity: room for shared_buffers');

# So does shared_buffers, which was raised meanwhile.
remove_tree("$top/some");
$node->append_conf('postgresql.conf', "shared_buffers = $blocks");
both_refuse(qr/not enough space in "\Q$top\E" for the persistent cache pool: \d+ MB needed, \d+ MB available/,
	'no room for shared_buffers');
$node->append_conf('postgresql.conf', 'shared_buffers = 32MB');
starts('there is room again for shared_buffers');

# Mounted again, but for somebody else.
SKIP:
{
	skip 'root may write everywhere', 5 if $> == 0;
	remove_tree("$top/some");
	chmod 0555, $top;
	both_refuse(qr/could not create the persistent cache pool: directory "\Q$top\E" is not writable: Permission denied/,
		'not writable');
	chmod 0755, $top;
	starts('writable again');
}
done_testing();
