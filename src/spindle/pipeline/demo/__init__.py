"""`make demo`: run Spindle's main job from end to end, on real input, in little more than a minute.

A node with three log directories takes the flights that left New York in 2013 from an unmodified
Kafka client; Spark reads them through the broker and straight from the directories; a Delta table
is made of them; and every copy is proved equal to the input.

Then three brokers with three disks each take the flights once more. In the middle a disk dies, the
client continues, and the same copies, read from the disks that are left, are proved equal again.
"""
