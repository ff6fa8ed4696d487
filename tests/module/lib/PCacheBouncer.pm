
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCacheBouncer - a PgBouncer before a cluster, and clients of it

=head1 SYNOPSIS

  use PCacheBouncer;

  plan skip_all => 'pgbouncer is not installed' if !has_pgbouncer();
  my $bouncer = start_pgbouncer('main', [ postgres => $node ], pool_mode => 'transaction');
  my $load = start_load($bouncer, '-b', 'select-only');
  load_goes_on($load, 'a restart');
  is(end_load($load), '', 'no transaction has failed');

=head1 DESCRIPTION

The programs end with the test.

=cut

package PCacheBouncer;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Temp qw();
use IPC::Run qw();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  has_pgbouncer
  start_pgbouncer
  conninfo
  console
  bouncer_log
  bouncer_offset
  wait_for_bouncer
  start_load
  answered
  load_goes_on
  end_load
);

my ($program) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/local/sbin';
my @running;

END
{
	my $rc = $?;

	$_->kill_kill for @running;
	$? = $rc;
}

sub has_pgbouncer { return defined $program }

# Start one with databases, each a name and the node that it leads to (or a text for its line),
# and more settings, and wait until it answers.
sub start_pgbouncer
{
	my ($name, $databases, %settings) = @_;
	my $dir = File::Temp::tempdir("bouncer-XXXXXX", DIR => $ENV{PCACHE_SHM}, CLEANUP => 1);
	my $bouncer = { name => $name, dir => $dir, port => PostgreSQL::Test::Cluster::get_free_port(), log => "$dir/log" };
	my ($user) = (getpwuid $>)[0];
	my $file = "$dir/pgbouncer.ini";
	my @databases = @$databases;

	append_to_file($file, "[databases]\n");
	while (my ($database, $node) = splice @databases, 0, 2)
	{
		append_to_file($file, "$database = " . (ref $node ? 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres' : $node) . "\n");
	}
	%settings = (
		listen_port => $bouncer->{port}, unix_socket_dir => $dir, listen_addr => '', logfile => $bouncer->{log},
		auth_type => 'trust', auth_file => "$dir/users", admin_users => $user, ignore_startup_parameters => 'extra_float_digits,options',
		max_client_conn => 50, server_login_retry => 1, %settings);
	append_to_file($file, "[pgbouncer]\n" . join('', map { "$_ = $settings{$_}\n" } sort keys %settings));
	append_to_file("$dir/users", "\"$user\" \"\"\n");
	$bouncer->{process} = IPC::Run::start([ $program, '-q', $file ], '<' => \undef, '>' => "$dir/out", '2>' => "$dir/out");
	push @running, $bouncer->{process};
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return $bouncer if defined eval { console($bouncer, 'SHOW VERSION') };
		select undef, undef, undef, 0.1;
	}
	die 'pgbouncer does not answer: ' . slurp_file("$dir/out") . (-e $bouncer->{log} ? slurp_file($bouncer->{log}) : '');
}

# How --pgbouncer names it.
sub conninfo
{
	my ($bouncer, $more) = @_;
	return "--pgbouncer=host=$bouncer->{dir} port=$bouncer->{port} " . ($more // '');
}

# Ask its console.
sub console
{
	my ($bouncer, $command) = @_;
	my $ok = IPC::Run::run([ 'psql', '-XAtq', '-h' => $bouncer->{dir}, '-p' => $bouncer->{port}, '-d' => 'pgbouncer', '-c' => $command ],
		'<' => \undef, '>' => \my $out, '2>' => \my $err);

	die $err if !$ok;
	return $out;
}

sub bouncer_log { my ($bouncer, $offset) = @_; return slurp_file($bouncer->{log}, $offset // 0) }

sub bouncer_offset { my ($bouncer) = @_; return -s $bouncer->{log} // 0 }

# Wait until its log has a line like that after the offset.
sub wait_for_bouncer
{
	my ($bouncer, $pattern, $offset) = @_;

	for (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return 1 if bouncer_log($bouncer, $offset) =~ $pattern;
		select undef, undef, undef, 0.01;
	}
	die "pgbouncer does not log $pattern: " . bouncer_log($bouncer, $offset);
}

# Clients of the pooler's database "postgres" that go on until they are ended, with options of
# pgbench.  Returns when the first of their transactions is done.
sub start_load
{
	my ($bouncer, @options) = @_;
	my $load = { dir => File::Temp::tempdir("load-XXXXXX", DIR => $ENV{PCACHE_SHM}, CLEANUP => 1), err => '', out => '' };

	# a line for each transaction, with a number that says whether it has failed
	$load->{process} = IPC::Run::start(
		[ 'pgbench', '-n', '-c' => 2, '-j' => 2, '-T' => 100000, '-l', "--log-prefix=$load->{dir}/t", '-h' => $bouncer->{dir}, '-p' => $bouncer->{port},
			@options, 'postgres' ],
		'<' => \undef, '>' => \$load->{out}, '2>' => \$load->{err});
	push @running, $load->{process};
	load_goes_on($load, 'the beginning');
	return $load;
}

# How many transactions have been answered; pgbench writes its log in blocks.
sub answered
{
	my ($load) = @_;
	my $size = 0;

	$size += -s $_ // 0 for glob "$load->{dir}/t*";
	return $size;
}

# A test: clients are answered from now on.
sub load_goes_on
{
	my ($load, $name) = @_;
	my $before = answered($load);

	for (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$load->{process}->pump_nb if $load->{process}->pumpable;
		last if !$load->{process}->pumpable || $load->{err} =~ /abort/;
		return pass("$name: clients go on") if answered($load) > $before;
		select undef, undef, undef, 0.01;
	}
	return fail("$name: clients go on: $load->{err}");
}

# End it.  Returns what pgbench has complained of.
sub end_load
{
	my ($load) = @_;

	$load->{process}->signal('TERM');
	eval { $load->{process}->finish };
	return $load->{err} =~ s/^(pgbench: )?(terminated|pgbench \(PostgreSQL.*)\n?//rgm;
}

1;
