
# Copyright (c) 2026, the persistent-cache developers

# A data directory that was put back from a copy, and a pool that another
# cluster has used, do not match any more: cold, with the right data.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $data = $node->data_dir;
my $expected;

$node->start;
load_data($node);

# A copy of the stopped data directory, put back later, has no use for what
# the pool holds by then.
my $snapshot = $node->basedir . '/snapshot';
$node->stop;
PostgreSQL::Test::RecursiveCopy::copypath($data, $snapshot,
	filterfn => sub { $_[0] !~ /^pg_pcache$|postmaster\.pid/ });
$node->start;
my $expected_then = checksums($node);
$node->safe_psql('postgres', 'UPDATE t_heap SET grp = 0, filler = upper(filler)');
cold_after($node, \$expected, 'restored snapshot', 'incarnation',
	qr/^the pool was last used by incarnation [0-9a-f]{16} of the server, the data directory by [0-9a-f]{16}$/, sub {
	rename $data, "$data.old" or die $!;
	rename $snapshot, $data or die $!;
	chmod 0700, $data;
	$expected = $expected_then;
});

# The same if nothing was changed in between but that the server ran.
$node->stop;
PostgreSQL::Test::Utils::system_or_bail('cp', '-a', $data, $snapshot);
$node->start;
cold_after($node, \$expected, 'restored snapshot of the same contents', 'incarnation', qr/incarnation/, sub {
	rename $data, "$data.old2" or die $!;
	rename $snapshot, $data or die $!;
});

# Another cluster's pool.
my $twin = new_node('twin');
my $stranger = new_node('stranger', init => { force_initdb => 1 });

for my $case (
	[
		$twin, 'incarnation',
		qr/^the data directory was last used with another pool$/,
		qr/^the pool was last used by incarnation/
	],
	[
		$stranger, 'system_identifier',
		qr/^the pool belongs to the cluster with system identifier \d+$/,
		qr/^the pool belongs to the cluster with system identifier \d+$/
	])
{
	my ($other, $reason, $message, $owner_message) = @$case;
	my $name = 'pool of ' . $other->name;
	my $expected_other;

	$other->start;
	load_data($other, rows => 3000);
	$expected_other = checksums($other);
	warm_up($other);
	$other->stop;
	cold_after($node, \$expected, $name, $reason, $message, sub {
		set_directory($node, pool_dir($other));
	});

	# and the owner, when it comes back, notices as well
	$node->stop;
	my $offset = log_offset($other);
	$other->start;
	is_cold($other, $offset, $owner_message, "$name: the owner comes back");
	is(checksums($other), $expected_other,
		"$name: the owner's contents are right");
	$other->stop;

	set_directory($node, pool_dir($node));
	$offset = log_offset($node);
	$node->start;
	is_cold($node, $offset, qr/another pool/, "$name: back to one's own");
	restart_warm($node, "$name: back to one's own");
}

$node->stop;
done_testing();
