
# Copyright (c) 2026, the persistent-cache developers

# Whatever touches a stopped cluster without its pool makes the next start
# cold, with the right data; pg_pcache verify foretells it.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $data = $node->data_dir;
my $expected;

$node->start;
load_data($node);
$expected = checksums($node);

my $moved_on = qr/^the pool was saved at checkpoint \S+, the last checkpoint of the cluster is at \S+$/;
my $without = qr/^the cluster was run without the pool$/;
my $change = q{UPDATE t_heap SET grp = grp + 1 WHERE id % 100 = 0};

cold_after($node, \$expected, 'switched off for a run', 'incarnation', $without, sub {
	set_mode($node, 'off');
	$node->start;
	$node->safe_psql('postgres', $change);
	$expected = checksums($node);
	$node->stop;
	set_mode($node, 'planned_restart');
});

cold_after($node, \$expected, 'switched off for a run that does nothing', 'incarnation', $without, sub {
	set_mode($node, 'off');
	$node->start;
	$node->stop;
	set_mode($node, 'planned_restart');
});

cold_after($node, \$expected, 'switched off for a run that crashes', 'incarnation', $without, sub {
	set_mode($node, 'off');
	$node->start;
	$node->stop('immediate');
	set_mode($node, 'planned_restart');
	# crash recovery resets them
	$expected =~ s/^t_unlogged.*$/t_unlogged|0|0/m;
});

cold_after($node, \$expected, 'single-user run', 'incarnation', $without, sub {
	run_log([ 'postgres', '--single', '-D' => $data, 'postgres' ],
		'<' => \"$change;\n", '>' => \my $out, '2>' => \my $err);
	is($?, 0, 'single-user run: it works with the cache configured');
	like($err . $out, qr/^(?!.*persistent cache:)/s,
		'single-user run: without the pool');
	# what it should be is known from a start without the pool
	$expected = checksums_without_pool($node);
});

SKIP:
{
	my $install = vanilla_install();

	skip 'PCACHE_VANILLA does not name an unpatched installation', 1
	  if !defined $install;
	cold_after($node, \$expected, 'run of an unpatched server', 'checkpoint', $moved_on, sub {
		with_install($node, $install, sub {
			set_mode($node, undef);
			$node->start;
			is( $node->safe_psql('postgres',
					q{SELECT count(*) FROM pg_settings WHERE name ~ 'persistent_cache'}),
				0, 'run of an unpatched server: it is one');
			$node->safe_psql('postgres', $change);
			$expected = checksums($node);
			$node->stop;
		});
		set_mode($node, 'planned_restart');
	});
	cold_after($node, \$expected, 'run of an unpatched server that crashes', 'control_state',
		qr/^the cluster was run without the pool, and not shut down cleanly$/, sub {
		with_install($node, $install, sub {
			set_mode($node, undef);
			$node->start;
			$node->stop('immediate');
		});
		set_mode($node, 'planned_restart');
		# crash recovery resets them
		$expected =~ s/^t_unlogged.*$/t_unlogged|0|0/m;
	});
}

cold_after($node, \$expected, 'pg_resetwal', 'checkpoint', $moved_on, sub {
	command_ok([ 'pg_resetwal', '-D' => $data ], 'pg_resetwal: run');
});

cold_after($node, \$expected, 'pg_checksums --disable', 'data_checksums',
	qr/^data checksums were switched on or off$/, sub {
	command_ok([ 'pg_checksums', '--disable', '--no-sync', '-D' => $data ],
		'pg_checksums --disable: run');
});

cold_after($node, \$expected, 'pg_checksums --enable', 'data_checksums',
	qr/^data checksums were switched on or off$/, sub {
	command_ok([ 'pg_checksums', '--enable', '--no-sync', '-D' => $data ],
		'pg_checksums --enable: run');
});

cold_after($node, \$expected, 'pg_checksums --disable and --enable', 'control_file',
	qr/^the control file was changed since the pool was saved$/, sub {
	# pg_control has a time stamp in seconds
	sleep 1;
	command_ok([ 'pg_checksums', $_, '--no-sync', '-D' => $data ],
		"pg_checksums: run $_")
	  for '--disable', '--enable';
});

# pg_checksums --check reads only, and does not look at the pool.
{
	my $valid = warm_up($node);
	my $offset = log_offset($node);

	$node->stop;
	command_ok([ 'pg_checksums', '--check', '-D' => $data ],
		'pg_checksums --check passes');
	$node->start;
	is_warm($node, $offset, $valid, 'pg_checksums --check');
}

$node->stop;
done_testing();
