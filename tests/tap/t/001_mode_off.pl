
# Copyright (c) 2026, the persistent-cache developers

# The patched server loads the library by itself.  With mode off, which is the default,
# there is no trace of the cache; two settings switch it on.  (295_names.pl is about the
# names of the settings.)

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'built without the cache' if !has_cache();

my $node = new_node('main', mode => undef, libraries => '', conf => 'log_statement = none');
my ($expected, $offset);

$node->start;
is($node->safe_psql('postgres', 'SHOW persistent_cache_mode'), 'off', 'off is the default');
load_data($node);
$expected = checksums($node);
warm_up($node);
$node->restart;
is(cached_table_pages($node), 0, 'off: nothing is kept');
is(checksums($node), $expected, 'off: contents are the same');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'persistent cache'}), 0, 'off: no worker');
$node->stop;
unlike(slurp_file($node->logfile), qr/persistent cache|pg_pcache/, 'off: no word in the log');
is_deeply([ glob $node->data_dir . '/*pcache*' ], [], 'off: no file in the data directory');

$node->append_conf('postgresql.conf', "persistent_cache_mode = planned_restart\npersistent_cache_directory = '" . pool_dir($node) . "'\n");
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the pool was created by this start$/, 'planned_restart');
is(checksums($node), $expected, 'planned_restart: contents are the same');
restart_warm($node, 'planned_restart');
$node->stop;
is(verify_json($node)->{next_start}, 'warm', 'pg_pcache verify knows that the library is loaded');

# where somebody has named it as on an unpatched server
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache'");
$node->start;
restart_warm($node, 'preloaded twice');
is(checksums($node), $expected, 'preloaded twice: contents are the same');
$node->stop;

done_testing();
