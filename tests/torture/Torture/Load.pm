
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::Load - what works on the server until it crashes?

=head1 DESCRIPTION

The statements come from Workload.  Those who send them are in process groups of
their own.  Errors are expected, and nobody looks at them.

=cut

package Torture::Load;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use Programs;
use Torture::State;
use Workload qw(:DEFAULT pick);

our @EXPORT = qw(start_load acknowledged end_load);

# The process ids of those who are at work.

my @children;

# Start psql and pgbench sessions as the plan says.  $cycle names their files.
sub start_load
{
	my ($s, $cycle) = @_;
	@children = ();
	start_acknowledged($cycle) if $opt{whole};
	start_queue($s, $cycle) if $s->{load}{queue} ne 'off';
	return if $s->{load}{queue} eq 'only';
	for my $client (0 .. ($s->{load}{stress} ? 11 : 3))
	{
		my $file = "$dir/client-$cycle-$client.sql";
		spew($file, sql_stream($client, 2500, $s->{load}));
		push @children, start_to("$dir/clients.out", "$bin/psql", '-XAtq', '-p', $port, '-o', '/dev/null', '-f', $file);
	}
	push @children, start_to("$dir/pgbench.out", "$bin/pgbench", '-n', '-c', 2, '-T', 600,
		'-p', $port, '--max-tries=10', '-M', pick('simple', 'prepared'));
	return;
}

# Producer and consumers of the queue.
sub start_queue
{
	my ($s, $cycle) = @_;
	my %scripts = queue_scripts();
	my @files;

	for my $name (sort keys %scripts)
	{
		my ($weight, $text) = @{ $scripts{$name} };
		spew("$dir/queue-$name.sql", $text);
		push @files, '-f', "$dir/queue-$name.sql\@$weight" if $weight;
	}
	# by index scans, since bitmap scans mark nothing as dead
	local $ENV{PGOPTIONS} = '-c enable_seqscan=off -c enable_bitmapscan=off';
	my @pgbench = ("$bin/pgbench", '-n', '-T', 600, '-p', $port, '--max-tries=10', '-M', 'prepared');
	push @children, start_to("$dir/queue.out", @pgbench, '-c', 4, '-R', 2000, @files),
	  start_to("$dir/queue.out", @pgbench, '-c', 1, '-f', "$dir/queue-put.sql");
	return;
}

# Two sessions that commit rows, and write down which of them the server has
# acknowledged.
sub start_acknowledged
{
	my ($cycle) = @_;
	for my $client (0, 1)
	{
		my $file = "$dir/acknowledged-$cycle-$client";
		spew("$file.sql", "SET synchronous_commit = on;\n"
			  . join('', map { "INSERT INTO acknowledged VALUES ('$cycle-$client-$_') RETURNING id;\n" } 1 .. 20000));
		push @children, start_to("$file.out", "$bin/psql", '-XAtq', '-p', $port, '-f', "$file.sql");
	}
	return;
}

# All of these rows, of all loads of the round.
sub acknowledged
{
	return grep { /^\S+-\d+-\d+\z/ } map { split /\n/, slurp($_) } glob "$dir/acknowledged-*.out";
}

# Kill them.
sub end_load
{
	for my $pid (@children)
	{
		kill 'KILL', -$pid;
		waitpid($pid, 0);
	}
	@children = ();
	return;
}

1;
