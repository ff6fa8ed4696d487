# Copyright (c) 2026, the persistent-cache developers

# A standby with less shared memory takes the hottest pages, and exchanges them
# when others become hot.  It does not read the same pages again and again.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use Hotset;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes;

my $primary = new_primary('primary');
my $standby;

# Do the pages of the table come to have usage counts as on the primary?
sub is_as_hot
{
	my ($table, $name) = @_;
	my $expected = heat($primary, $table);
	my $found;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$found = heat($standby, $table);
		last if $found eq $expected;
		Time::HiRes::usleep(100_000);
	}
	is($found, $expected, "$name: usage counts of $table are those of the primary");
}

add_table($primary, $_, 300) foreach qw(hot hot_later);
add_table($primary, 'lukewarm', 1000);
add_table($primary, 'rising', 50);
$primary->restart;

# 600 buffers, of which the rest of the server needs some 200
$standby = new_standby('standby', $primary, conf => "shared_buffers = 600\npg_hotset.interval = 0\n");
$standby->start;
$primary->safe_psql('postgres', <<'EOF');
SELECT pg_prewarm('hot') FROM generate_series(1, 5);
SELECT pg_prewarm('lukewarm') FROM generate_series(1, 3);
EOF
$standby->append_conf('postgresql.conf', "pg_hotset.interval = 1s\n");
$standby->reload;
is_warm($standby, $primary, 'first rounds', 'hot');
wait_until($standby, 'no_room > 500', 'the view says that there is too little room');
cmp_ok(pages($standby, 'lukewarm'), '>', 10, 'the rest of the room is used');
cmp_ok(pages($standby, 'lukewarm'), '<', 600, '... and the rest of the pages does not come');

# steady, although there is no room
wait_for_rounds($standby, 8);
my $read = stat_of($standby, 'pages_read');
wait_for_rounds($standby, 8);
cmp_ok(stat_of($standby, 'pages_read') - $read, '<=', 30, 'a steady state reads next to nothing');

# Other pages become hot.
$primary->safe_psql('postgres', <<'EOF');
SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('hot');
SELECT pg_prewarm('hot_later') FROM generate_series(1, 5);
EOF
is_warm($standby, $primary, 'later', 'hot_later');
cmp_ok(stat_of($standby, 'buffers_evicted'), '>', 0, 'colder pages were evicted for them');
# The clock sweep takes counts down whenever somebody needs a buffer, and each round
# takes them up again.  So there is a moment in which all are hotter than pages that
# were read once.
ok( $standby->poll_query_until(
		'postgres',
		"SELECT count(*) >= 300 FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('hot_later') AND usagecount > 1"),
	'they are hotter than pages that were read once');
wait_for_rounds($standby, 8);
$read = stat_of($standby, 'pages_read');
wait_for_rounds($standby, 8);
cmp_ok(stat_of($standby, 'pages_read') - $read, '<=', 30, 'and it is steady again');

# What somebody evicts is noticed.  Its room is free, so it comes back.
$standby->safe_psql('postgres',
	"SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('hot_later')");
wait_until($standby, 'evicted_again >= 290', 'pages that were evicted again are counted');
wait_for_rounds($standby, 10);
is_warm($standby, $primary, 'evicted', 'hot_later');
ok(!$standby->log_contains('could not decode'), '... and each round knows what was evicted before it');

# With room for all, nobody needs the clock sweep.
$standby->append_conf('postgresql.conf', "shared_buffers = 32MB\n");
$standby->restart;
is_as_hot($_, 'with room for all') foreach qw(hot_later lukewarm);
$primary->safe_psql('postgres', "SELECT pg_prewarm('rising')");
is_warm($standby, $primary, 'read once', 'rising');
$primary->safe_psql('postgres', "SELECT pg_prewarm('rising') FROM generate_series(1, 4)");
is_as_hot('rising', 'read more often while it is here');

$standby->stop;
$primary->stop;
done_testing();
