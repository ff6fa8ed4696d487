
# Copyright (c) 2026, the persistent-cache developers

# What may go wrong with pages that pcache.recovery = short keeps, where nobody has to be
# stopped at a place in the code (see 011_worst_moment.pl for that).

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

$ENV{PCACHE_RECOVERY} //= 'short';
my $node = module_node('main', mode => 'always', conf => "wal_writer_delay = 10s\nbgwriter_delay = 10s\nautovacuum = off\nwal_log_hints = off\n");
run_command([ 'pg_checksums', '--disable', '-D', $node->data_dir ]);
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION IF NOT EXISTS pg_prewarm; CREATE EXTENSION IF NOT EXISTS pg_buffercache;
CREATE TABLE big WITH (fillfactor = 10) AS SELECT i AS id, repeat('b', 500) AS s FROM generate_series(1, 3300) i;
CREATE TABLE m (id int, s text)});

# How many young pages a start has kept.
sub young { return $_[0]{log} =~ /(\d+) of these pages are younger/ ? $1 : 0; }

# ------------------------------------------------------------------------------------
# The kernel has not written what it was given (EIO), and nobody has synced the file, so
# nobody knows.  Redo mends it, if it writes each page that was changed behind the redo point.

{
	my ($path, $old, $offset, $outcome, $right);

	$node->safe_psql('postgres', $_) for q{INSERT INTO m SELECT i, repeat('s', 100) FROM generate_series(1, 1500) i},
	'SELECT count(*) FROM m', 'CHECKPOINT';
	$path = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('m')});
	$old = slurp_file($path);
	$node->safe_psql('postgres', $_) for 'DELETE FROM m WHERE id <= 1000', 'SELECT count(*) FROM m',
	# written, and read again
	q{SELECT pg_prewarm('big') FROM generate_series(1, 8)}, q{SELECT pg_prewarm('m')};
	is($node->safe_psql('postgres', q{SELECT count(*) > 0 AND count(*) FILTER (WHERE isdirty) = 0 FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('m') AND relforknumber = 0}),
		't', 'lost writes: the pages are clean');
	open my $file, '+<:raw', $path or die;
	print $file $old;
	close $file or die;
	kill_all($node);
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', 'lost writes: warm');
	note('lost writes: ' . young($outcome) . ' young pages');
	$node->stop;
	$node->append_conf('postgresql.conf', q{shared_preload_libraries = ''});
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM m'), '500', 'lost writes: what was deleted stays so');
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q{'pg_pcache'});
	$node->stop;
}

done_testing();
