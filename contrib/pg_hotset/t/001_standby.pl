# Copyright (c) 2026, the persistent-cache developers

# A standby holds what was only read on its primary: with the same usage counts,
# without reading on and on, after a restart without the primary, and after a
# promotion.  A primary that has just started does not make it forget.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use Hotset;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $refused = qr/could not get a list: .*(?:refused|No such file)/;
my $primary = new_primary('primary');

add_table($primary, 'hot', 300);
add_table($primary, 'lukewarm', 200);
add_table($primary, 'cold', 100);
$primary->safe_psql('postgres', 'CREATE DATABASE other');
$primary->safe_psql('other', 'CREATE EXTENSION pg_prewarm; CREATE EXTENSION pg_buffercache');
add_table($primary, 'elsewhere', 50, database => 'other');
$primary->restart;

my $standby = new_standby('standby', $primary);
$standby->start;
is(pages($standby, 'hot'), 0, 'the standby has nothing of what is only read');
$primary->safe_psql('postgres',
	"SELECT pg_prewarm('hot') FROM generate_series(1, 5); SELECT pg_prewarm('lukewarm') FROM generate_series(1, 3)");
$primary->safe_psql('other', "SELECT pg_prewarm('elsewhere')");
cmp_ok(pages($primary, 'hot'), '>=', 300, 'the primary has it');

# warm
is_warm($standby, $primary, 'first round', 'hot', 'lukewarm');
ok( $standby->poll_query_until(
		'other', "SELECT count(*) >= 50 FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('elsewhere')"),
	'another database is warm');
is(pages($standby, 'cold'), 0, 'what nobody reads is not read');
# The round that has read them may have had a list of when they were getting hot.
wait_for_rounds($standby, 2);
is(heat($standby, 'hot'), heat($primary, 'hot'), 'usage counts are taken over: hot');
is(heat($standby, 'lukewarm'), heat($primary, 'lukewarm'), 'usage counts are taken over: lukewarm');
wait_until($standby, 'percent_warm > 99', 'the view says that it is warm');
like(stat_of($standby, "list_from || ' ' || (list_bytes > 0) || ' ' || (taken <= received)"),
	qr/:\d+ true true/, 'the view says of whom the list is');
ok(-s $standby->data_dir . '/pg_hotset.list', 'the list is kept');
like(
	slurp_file($standby->logfile),
	qr/pg_hotset read \d+ pages in .*% of the hot set is in shared buffers/,
	'the log says what was read');

# steady
wait_for_rounds($standby, 2);
my $read = stat_of($standby, 'pages_read');
wait_for_rounds($standby, 5);
cmp_ok(stat_of($standby, 'pages_read') - $read, '<=', 20, 'a steady state reads next to nothing');
is(stat_of($standby, 'buffers_evicted'), 0, 'nothing was evicted for it');
is( $standby->safe_psql('postgres', "SELECT count(backend_xmin) FROM pg_stat_activity WHERE backend_type LIKE 'pg_hotset%'"),
	0, 'no snapshot is held');

# A standby of the standby gets the primary's list, not what its own primary holds.
$standby->safe_psql('postgres', "SELECT pg_prewarm('cold')");
is( $standby->safe_psql(
		'postgres', "SELECT count(*) FROM pg_hotset_pages(pg_hotset()) WHERE relfilenode = pg_relation_filenode('cold')"),
	0,
	'a standby passes on the list of its primary');
my $cascade = new_standby('cascade', $standby);
ok(-s $cascade->data_dir . '/pg_hotset.list', 'the list is part of a base backup');
unlink $cascade->data_dir . '/pg_hotset.list' or die $!;
$cascade->start;
is_warm($cascade, $primary, 'cascading standby', 'hot', 'lukewarm');
is(pages($cascade, 'cold'), 0, 'a cascading standby does not read what only its own primary has');
is( $cascade->safe_psql('postgres', 'SELECT server_start FROM pg_hotset_info(pg_hotset())'),
	$primary->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'),
	"its list is the first primary's");
$cascade->stop;

# The primary has just started, and has next to nothing.
$primary->stop;
# no list is on its way any more
wait_until($standby, 'problem IS NOT NULL', 'the primary is down');
my $pages = stat_of($standby, 'list_pages');
$primary->start;
wait_until($standby, "problem LIKE '%just started%'", 'the list of a server that has just started is refused');
is(stat_of($standby, 'list_pages'), $pages, '... and the last one stays');
cmp_ok(pages($standby, 'hot'), '>=', 300, '... and so do the pages');

# without a primary
$primary->stop;
$standby->restart;
wait_until($standby, "list_from = 'pg_hotset.list' AND percent_warm > 99", 'a restarted standby uses its file');
cmp_ok(pages($standby, 'hot'), '>=', 300, '... and is warm');
wait_until($standby, 'problem IS NOT NULL AND problem_since IS NOT NULL AND failures > 1',
	'the view says that the primary does not answer');
my $messages = () = slurp_file($standby->logfile) =~ /$refused/g;
wait_for_rounds($standby, 3);
my $now = () = slurp_file($standby->logfile) =~ /$refused/g;
cmp_ok($messages, '>', 0, 'the log says so');
is($now, $messages, '... once');

# promoted
$standby->promote;
wait_until($standby, "state = 'primary'", 'a promoted server does not ask anybody');
is( $standby->safe_psql(
		'postgres',
		"SELECT count(*) >= 300 FROM pg_hotset_pages(pg_hotset()) WHERE relfilenode = pg_relation_filenode('hot') AND usagecount = 5"
	),
	't',
	'its own list has what it got');

$standby->stop;
done_testing();
